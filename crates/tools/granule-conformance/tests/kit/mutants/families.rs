//! Backends that break rules of this area: the smaller families.

use super::virtual_memory::UNKNOWN;
use super::*;

pub(crate) const MUTANTS: &[Mutant] = &[
    mutant("families.no_reason", "an absent family gives no reason")
        .without_peers("")
        .caught_by("families.absent_with_reason"),
    mutant("families.sharing_alone", "physical memory is shared where there is no virtual memory")
        .without_virtual_memory("hidden")
        .caught_by("families.sharing_needs_virtual_memory"),
    mutant("families.no_attributes", "every attribute is 0")
        .attribute(|call| call.changed(|it| *it = 0))
        .caught_by("families.attributes_agree"),
    mutant("families.registered_is_unknown", "pointer_info does not know registered memory")
        .pointer_info(|call| call.said_of(PointerKind::Host, |it| *it = UNKNOWN))
        .caught_by("families.registered_is_host"),
    mutant("families.register_twice", "memory that is registered can be registered again")
        .register(ignores_refusals)
        .caught_by("families.registered_once"),
    mutant("families.register_zero", "registering 0 bytes is fine")
        .register(|call| call.answer_if(call.bytes == 0, ()))
        .caught_by("families.register_nothing"),
    mutant("families.unregister_of_null", "unregistering null is fine")
        .unregister(|call| call.answer_if(call.ptr.is_null(), ()))
        .caught_by("families.unregister_null"),
    mutant("families.unregister_all", "unregistering what is not registered is fine")
        .unregister(ignores_refusals)
        .caught_by("families.unregister_unknown"),
    mutant("families.copies_short", "queued copies lose the last byte")
        .copy_async(|call| call.with(|it| it.bytes = it.bytes.saturating_sub(1)))
        .caught_by("families.registered_copies"),
];
