//! Making an allocator: settings that it refuses, and what it costs.

use alloc_core::backend::Backend;
use alloc_core::config::{AllocatorBackend, PolicyName, Settings};
use alloc_core::types::MIB;
use alloc_core::{AllocError, CachingAllocator};
use backend_openreg::{OpenReg, OpenRegConfig};
use granule_tests::alone::alone;
use granule_tests::log::Log;
use granule_tests::policy::Policy;
use granule_tests::rig::on_each;
use granule_tests::setup::of;
use granule_tests::with_policy;

/// They are the driver's, and no allocator's: a program that asks for them gets Granule all the same.
fn driver_pools_are_a_note_and_no_refusal<P: Policy>() {
    let device = OpenReg::new(OpenRegConfig::default()).unwrap();
    let settings = Settings { backend: AllocatorBackend::DriverPools, ..Settings::default() };
    let log = Log::default();
    let allocator = tracing::subscriber::with_default(log.clone(), || {
        granule_tests::made::<P>(device, settings).unwrap()
    });
    assert_eq!(allocator.settings().backend, AllocatorBackend::Native);
    assert_eq!(log.take("backend:cudaMallocAsync is not served").len(), 1);
}

#[test]
fn c06_a_running_allocator_keeps_its_backend() {
    on_each(&of(100), |rig| {
        let allocator = rig.allocator(Settings::default());
        let before = allocator.settings();
        let other =
            Settings { backend: AllocatorBackend::DriverPools, expandable_segments: true, ..before.clone() };
        assert_eq!(
            allocator.configure(other).unwrap_err().to_string(),
            "Allocator backend parsed at runtime != allocator backend parsed at load time, cudaMallocAsync != native"
        );
        assert_eq!(allocator.settings(), before, "nothing was taken over");
    });
}

/// The settings choose the policy, from code and from text; a running allocator keeps it.
fn settings_choose_the_policy_once_and_for_all<P: Policy>() {
    let settings = Settings::parse(&format!("policy:{}", P::NAME)).unwrap();
    let allocator = CachingAllocator::new(OpenReg::new(of(100)).unwrap(), settings.clone()).unwrap();
    assert_eq!((allocator.policy_name(), allocator.settings()), (P::NAME, settings.clone()));
    let others = PolicyName::ALL.iter().copied().filter(|policy| policy.name() != P::NAME);
    for asked in others {
        let refused = allocator.configure(Settings { policy: Some(asked), ..Settings::default() });
        let text = refused.as_ref().unwrap_err().to_string();
        assert!(matches!(refused, Err(AllocError::PolicyFixed { .. })), "{text}");
        for part in
            [format!("policy:{asked} is refused"), format!("policy:{}", P::NAME), "make another one".into()]
        {
            assert!(text.contains(&part), "{text}");
        }
    }
    assert_eq!(allocator.settings(), settings.clone(), "nothing has changed");
    allocator.configure(settings).unwrap();
    allocator.configure(Settings::default()).unwrap();
    assert_eq!(allocator.settings().policy_name().name(), P::NAME, "what is not said stays");
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
        let error = granule_tests::made::<P>(device.clone(), settings.clone()).unwrap_err();
        assert!(error.to_string().contains("it must be"), "{error}");
        let allocator = granule_tests::made::<P>(device.clone(), Settings::default()).unwrap();
        assert!(allocator.configure(settings).is_err());
    }
}

/// KiB of memory that this process uses on the host.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// How many mappings of this process ask for huge pages.
fn asked_to_be_huge() -> usize {
    let mappings = std::fs::read_to_string("/proc/self/smaps").unwrap();
    mappings.lines().filter(|line| line.starts_with("VmFlags:") && line.contains(" hg")).count()
}

/// Each of ten thousand streams has regions of its own, whose blocks the address map finds: it took a huge page for each.
fn a_stream_costs_little_on_the_host<P: Policy>() {
    alone(|| {
        // Else addresses of the simulated device end after some fifty streams under `pytorch`.
        let settings = "expandable_segments:True,expandable_segments_reserve:4G";
        let settings = Settings::parse(settings).unwrap();
        let (device, allocator, home) =
            with_policy::<P>(OpenRegConfig::default().devices(1).capacity(80 << 30), settings);
        let (streams, before, asked) = (500, resident(), asked_to_be_huge());
        for _ in 0..streams {
            let stream = device.create_stream(home.device, 0).unwrap();
            for bytes in [1000, 3 * MIB] {
                allocator.malloc(bytes, stream).unwrap();
            }
        }
        let each = (resident() - before) / streams;
        println!("{each} KiB for a stream with two blocks");
        assert!(each < 512, "{each} KiB for a stream with two blocks");
        let has_huge_pages = std::fs::exists("/sys/kernel/mm/transparent_hugepage").unwrap();
        assert!(!has_huge_pages || asked_to_be_huge() > asked, "the first ones may have huge pages");
    });
}

/// The address map touched megabytes for its first entry.
fn an_allocator_costs_little_until_it_is_used<P: Policy>() {
    alone(|| {
        let before = resident();
        let machines: Vec<_> = (0..16)
            .map(|_| {
                let (device, allocator, home) = with_policy::<P>(of(100), Settings::default());
                (allocator.malloc(1000, home).unwrap(), device, allocator)
            })
            .collect();
        let each = (resident() - before) / machines.len() as u64;
        // A huge page for the map's first entries is 2 MiB.
        assert!(each < 3072, "{each} KiB for an allocator with one block");
    });
}

granule_tests::for_each_policy!(
    driver_pools_are_a_note_and_no_refusal,
    settings_choose_the_policy_once_and_for_all,
    settings_made_in_code_are_checked,
    an_allocator_costs_little_until_it_is_used,
    a_stream_costs_little_on_the_host,
);
