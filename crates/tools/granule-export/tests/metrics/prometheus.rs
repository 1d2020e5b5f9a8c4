//! The text that Prometheus gets.

use crate::support::{DEVICE, program};
use alloc_core::budget::Budget;
use alloc_core::config::MemoryLimit;
use alloc_core::types::{MIB, PoolId};
use granule_export::metrics::prometheus::{Collector, text};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use std::sync::Arc;

#[test]
fn a_small_program() {
    let (allocator, _) = program();
    insta::assert_snapshot!(text(&allocator));
}

#[test]
fn a_collector_says_the_same_in_a_registry_and_does_not_keep_the_allocator() {
    let (allocator, _) = program();
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Collector::new(Arc::downgrade(&allocator))));
    let scrape = |registry: &Registry| {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        text
    };
    assert_eq!(scrape(&registry), text(&*allocator));
    drop(allocator);
    assert_eq!(scrape(&registry), "# EOF\n");
}

#[test]
fn labels_of_a_registry_tell_two_allocators_apart() {
    let (first, second) = (program().0, program().0);
    let mut registry = Registry::default();
    for (name, allocator) in [("first", first), ("second", second)] {
        let labelled = registry.sub_registry_with_label(("allocator".into(), name.into()));
        labelled.register_collector(Box::new(Collector::new(allocator)));
    }
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    for name in ["first", "second"] {
        let line =
            format!("granule_ooms_total{{allocator=\"{name}\",device=\"0\",kind=\"privateuseone\"}} 1\n");
        assert!(text.contains(&line), "{line} is not in {text}");
    }
}

#[test]
fn tenants_are_told_apart_by_their_names() {
    let (allocator, _) = program();
    let budget = Budget { soft: Some(MemoryLimit::Bytes(100 * MIB)), ..Budget::default() };
    let tenant = allocator.budgets().create_tenant(DEVICE, "the \"first\"\\\n", &budget).unwrap();
    allocator.budgets().create_tenant(DEVICE, "second", &Budget::default()).unwrap();
    allocator.budgets().join(PoolId::DEFAULT, tenant).unwrap();
    let text = text(&allocator);
    let of_tenants: Vec<_> = text.lines().filter(|line| line.starts_with("granule_tenant_")).collect();
    let line = |name: &str, tenant: &str, value: u64| {
        let labels = format!("{{device=\"0\",kind=\"privateuseone\",tenant=\"{tenant}\"}}");
        assert!(of_tenants.contains(&&*format!("granule_tenant_{name}{labels} {value}")), "{of_tenants:#?}");
    };
    let first = r#"the \"first\"\\\n"#;
    line("held_bytes", first, allocator.budgets().stats(tenant).unwrap().held);
    line("soft_limit_bytes", first, 100 * MIB);
    line("refusals_total", "second", 0);
    line("spilled_bytes_total", "second", 0);
    let soft = of_tenants.iter().filter(|line| line.contains("soft_limit"));
    assert_eq!(soft.count(), 1, "who has none is not listed");
}
