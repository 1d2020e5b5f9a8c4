//! Making an allocator: settings that it refuses, and what it costs.

use alloc_core::CachingAllocator;
use alloc_core::config::{PolicyName, Settings};
use alloc_core::policy::Policy;
use alloc_core::types::MIB;
use backend_openreg::{OpenReg, OpenRegConfig};
use granule_tests::alone::alone;
use granule_tests::setup::{of, roomy};
use granule_tests::with_policy;

fn driver_pools_are_refused_clearly<P: Policy>() {
    let device = OpenReg::new(OpenRegConfig::default()).unwrap();
    let settings =
        Settings { backend: alloc_core::config::AllocatorBackend::DriverPools, ..Settings::default() };
    let error = CachingAllocator::<P>::new(device, settings).unwrap_err();
    assert!(error.to_string().contains("backend:native"), "{error}");
}

/// The policy is the allocator's type: settings that name another are refused, from code and from text, at first and later.
fn another_policy_than_that_of_the_type_is_refused<P: Policy>() {
    let (device, allocator, _) = roomy::<P>(Settings::default());
    let of_type = |policy: &PolicyName| policy.name() == P::NAME;
    let (own, others): (Vec<_>, Vec<_>) = PolicyName::ALL.iter().copied().partition(of_type);
    for other in others {
        let read: Settings = format!("policy:{other}").parse().unwrap();
        let written = Settings { policy: Some(other), ..Settings::default() };
        for settings in [read, written] {
            let refused = [
                CachingAllocator::<P>::new(device.clone(), settings.clone()).map(drop),
                allocator.configure(settings),
            ];
            for refused in refused {
                let text = refused.unwrap_err().to_string();
                for part in
                    [format!("policy:{other}"), format!("policy:{}", P::NAME), "leave policy out".into()]
                {
                    assert!(text.contains(&part), "{text}");
                }
            }
        }
    }
    assert_eq!(allocator.settings(), Settings::default(), "nothing has changed");
    allocator.configure(Settings { policy: Some(own[0]), ..Settings::default() }).unwrap();
    assert_eq!(allocator.settings().policy_name().name(), allocator.policy_name());
}

/// Settings made in code were not checked; a small large segment handed out memory beyond its segment.
fn settings_made_in_code_are_checked<P: Policy>() {
    let device = OpenReg::new(of(100)).unwrap();
    let wrong = [
        Settings { large_segment_size: MIB, ..Settings::default() },
        Settings { large_segment_size: 0, ..Settings::default() },
        Settings { max_split_size: MIB, ..Settings::default() },
        Settings { garbage_collection_threshold: 1.5, ..Settings::default() },
        Settings { per_process_memory_fraction: f64::NAN, ..Settings::default() },
        Settings { roundup_power2_divisions: [3; 16], ..Settings::default() },
    ];
    for settings in wrong {
        let error = CachingAllocator::<P>::new(device.clone(), settings.clone()).unwrap_err();
        assert!(error.to_string().contains("it must be"), "{error}");
        let allocator = CachingAllocator::<P>::new(device.clone(), Settings::default()).unwrap();
        assert!(allocator.configure(settings).is_err());
    }
}

/// The address map touched megabytes for its first entry.
fn an_allocator_costs_little_until_it_is_used<P: Policy>() {
    alone(|| {
        let resident = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
            line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
        };
        let before = resident();
        let machines: Vec<_> = (0..16)
            .map(|_| {
                let (device, allocator, home) = with_policy::<P>(of(100), Settings::default());
                (allocator.malloc(1000, home).unwrap(), device, allocator)
            })
            .collect();
        let each = (resident() - before) / machines.len() as u64;
        // A huge page for the map's first entries is 2 MiB.
        assert!(each < 4096, "{each} KiB for an allocator with one block");
    });
}

granule_tests::for_each_policy!(
    driver_pools_are_refused_clearly,
    another_policy_than_that_of_the_type_is_refused,
    settings_made_in_code_are_checked,
    an_allocator_costs_little_until_it_is_used,
);
