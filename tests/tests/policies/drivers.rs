//! Views over the real backends on their lookalike drivers, and over HIP seen as CUDA: contents survive there, too. With
//! `GRANULE_REAL_DRIVERS`, over the drivers that the machine has.

use alloc_core::config::Settings;
use backend_cuda::Cuda;
use backend_hip::Hip;
use granule_masquerade::{Masquerade, Policy};
use granule_tests::alone::{over_drivers, over_lookalikes};
use granule_tests::lookalike::real_drivers;
use granule_tests::policy::GranulePolicy;
use granule_tests::views::contents_survive;

#[test]
fn no_two_live_blocks_share_a_byte_over_drivers() {
    over_drivers("devices=1,capacity=48MiB,memory=mapped", || {
        let limited = || Settings { per_process_memory_fraction: 0.9, ..Settings::default() };
        let mut found = 0;
        let mut check = |name: &str, shown: u64| {
            println!("{name}: memory was mapped {shown} times more than once");
            assert!(shown > 10 || real_drivers(), "{name}: views are common: {shown}");
            found += 1;
        };
        // One owner of a label at a time.
        match Cuda::load() {
            Ok(cuda) => check("cuda", contents_survive::<GranulePolicy>(cuda, limited(), 5, 300)),
            Err(error) => println!("cuda: {error}"),
        }
        match Hip::load() {
            Ok(hip) => {
                check("hip", contents_survive::<GranulePolicy>(hip.clone(), limited(), 6, 300));
                let masked = Masquerade::new(hip, Policy::Flip).unwrap();
                check("hip as cuda", contents_survive::<GranulePolicy>(masked, limited(), 7, 300));
            }
            Err(error) => println!("hip: {error}"),
        }
        assert!(found == 3 || real_drivers(), "the lookalikes are always there");
        assert!(found > 0, "no driver was found; unset GRANULE_REAL_DRIVERS");
    });
}

/// Level Zero was seen to map other memory the second time (kvcached 501).
#[test]
fn a_driver_that_lies_about_aliases_gets_no_views() {
    over_lookalikes("personality=false-alias,devices=1,capacity=48MiB,memory=mapped", || {
        let cuda = Cuda::load().unwrap();
        assert_eq!(
            contents_survive::<GranulePolicy>(cuda, Settings::default(), 8, 300),
            2,
            "tried, and not used"
        );
    });
}
