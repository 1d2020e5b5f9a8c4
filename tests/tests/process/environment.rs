//! Settings that the library takes from the environment.

use alloc_core::config::PolicyName;
use alloc_core::{AllocError, CachingAllocator};
use backend_openreg::{OpenReg, OpenRegConfig};
use granule_tests::alone::alone;

#[test]
fn the_environment_is_read_when_it_is_asked_for_and_errors_are_the_callers() {
    alone(|| {
        let from_env = || {
            let machine = OpenReg::new(OpenRegConfig::default()).unwrap();
            CachingAllocator::from_env(machine).map(|allocator| allocator.settings())
        };
        // SAFETY: this process runs one test, and no other thread reads the environment meanwhile.
        unsafe { std::env::set_var("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True") };
        // SAFETY: as above.
        unsafe { std::env::set_var("GRANULE_CONF", "publish:True,memory_limit:2GiB") };
        let settings = from_env().unwrap();
        assert!(settings.expandable_segments && settings.publish && settings.memory_limit.is_some());
        // SAFETY: as above.
        unsafe { std::env::set_var("GRANULE_CONF", "publich:True") };
        let refusal = from_env().unwrap_err();
        assert!(matches!(refusal, AllocError::Settings(_)));
        let text = refusal.to_string();
        assert!(
            text.contains("GRANULE_CONF") && text.contains("publish"),
            "names variable and remedy: {text}"
        );
        // SAFETY: as above.
        unsafe { std::env::set_var("GRANULE_CONF", "policy:granule") };
        assert_eq!(from_env().unwrap().policy, Some(PolicyName::Granule));
        let machine = OpenReg::new(OpenRegConfig::default()).unwrap();
        assert_eq!(CachingAllocator::from_env(machine).unwrap().policy_name(), "granule");
    });
}
