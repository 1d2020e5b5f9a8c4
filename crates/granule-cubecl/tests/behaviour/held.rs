//! What a recorded program holds.

use crate::memory::Pools;
use crate::replay::{live, over_granule, over_the_driver};

#[test]
fn granule_holds_less_of_a_recorded_program_than_cubecls_pools() {
    let Some(trace) = granule_tests::recorded("resnet_train") else { return };
    let live = live(&trace);
    assert_eq!(live, trace.header.peak_live_requested.unwrap());
    let pools = over_the_driver(&trace, Pools::Adaptive).unwrap();
    let granule = over_granule(&trace, Pools::Dedicated, "policy:granule").unwrap();
    println!("live {live}, CubeCL's pools {pools}, Granule {granule}");
    assert!(granule >= live && granule < live + live / 20, "{granule} for {live}");
    assert!(granule < pools, "{granule}, and {pools} with CubeCL's pools");
}
