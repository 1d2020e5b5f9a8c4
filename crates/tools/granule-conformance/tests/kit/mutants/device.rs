//! Backends that break rules of this area: ids, counts, attributes and the current device.

use super::*;

pub(crate) const MUTANTS: &[Mutant] = &[
    mutant("device.id_changes", "its id is another at every call")
        .id(|call| BackendId(call.go().0 + call.turn() as u16 % 2))
        .caught_by("device.id_is_stable"),
    mutant("device.kind_changes", "its kind is another at every call")
        .kind(|call| if call.is_turn(2) { DeviceKind::Cuda } else { call.go() })
        .caught_by("device.kind_is_stable"),
    mutant("device.shouts_its_name", "its name is in upper case")
        .name(|_| "OpenReg")
        .caught_by("device.name_is_lower_case"),
    mutant("device.count_changes", "a device comes and goes")
        .device_count(|call| Ok(call.go()? - call.turn() as u16 % 2))
        .caught_by("device.count_is_stable"),
    mutant("device.counts_manifold", "there are 257 devices")
        .device_count(|_| Ok(MAX_DEVICES + 1))
        .caught_by("device.count_within_limit"),
    mutant("device.count_per_thread", "other threads see a device less")
        .device_count(|call| Ok(call.go()? - u16::from(on_side_thread())))
        .caught_by("device.count_on_any_thread"),
    mutant("device.counts_from_one", "the current device is counted from 1")
        .current_device(|call| Ok(DeviceIndex(call.go()?.0 + call.inner.device_count()?)))
        .caught_by("device.current_is_one_of_them"),
    mutant("device.none_on_new_threads", "a new thread has no device")
        .current_device(|call| call.answer_if(on_side_thread(), DeviceIndex(u16::MAX)))
        .caught_by("device.current_on_new_thread"),
    mutant("device.set_ignored", "set_device does nothing")
        .set_device(|call| call.inner.has_primary_context(call.device).map(drop))
        .caught_by("device.set_takes_effect"),
    mutant("device.set_once_only", "the current device cannot be set again")
        .set_device(|call| call.refuse_if(call.device.0 == 0 && call.inner.current_device()?.0 == 0))
        .caught_by("device.set_again"),
    mutant("device.set_takes_anything", "an unknown device is taken")
        .set_device(ignores_refusals)
        .caught_by("device.set_unknown_is_refused"),
    mutant("device.set_falls_back", "a refused set_device leaves device 0 current")
        .set_device(|call| call.leave_current_if_refused(DeviceIndex(0)))
        .caught_by("device.set_unknown_changes_nothing"),
    mutant("device.no_way_back", "device 0 cannot be made current again")
        .set_device(|call| call.answer_if(call.device.0 == 0, ()))
        .caught_by("device.guard_restores"),
    mutant("device.no_context", "a used device has no context")
        .has_primary_context(|call| call.changed(|has| *has = false))
        .caught_by("device.context_exists_after_use"),
    mutant("device.context_by_asking", "asking for the context makes it")
        .has_primary_context(|call| call.go().map(|_| call.turn() > 1))
        .caught_by("device.context_not_made_by_asking"),
    mutant("device.clamps_device", "an unknown device is taken for the last one")
        .has_primary_context(clamps_device)
        .attribute(clamps_device)
        .properties(clamps_device)
        .synchronize_device(clamps_device)
        .malloc(clamps_device)
        .memory_info(clamps_device)
        .create_stream(clamps_device)
        .priority_range(clamps_device)
        .create_event(clamps_device)
        .caught_by("device.properties_unknown_is_refused"),
    mutant("device.nameless", "devices have no name")
        .properties(|call| call.changed(|it| it.name.clear()))
        .caught_by("device.properties_have_a_name"),
    mutant("device.without_memory", "devices have 0 bytes")
        .properties(|call| call.changed(|it| it.total_memory = 0))
        .caught_by("device.properties_have_memory"),
    mutant("device.renamed", "devices have another name at every call")
        .properties(|call| {
            let suffix = call.turn().to_string();
            call.changed(|it| it.name.push_str(&suffix))
        })
        .caught_by("device.properties_are_stable"),
    mutant("device.kibibytes", "total memory is in KiB")
        .properties(|call| call.changed(|it| it.total_memory >>= 10))
        .caught_by("device.total_memory_agrees"),
    mutant("device.one_uuid", "all devices have one uuid")
        .properties(|call| call.changed(|it| it.uuid = Some([7; 16])))
        .caught_by("device.uuids_differ"),
    mutant("device.odd_bus_id", "the PCI id is only a number")
        .properties(|call| call.changed(|it| it.pci_bus_id = Some("17".into())))
        .caught_by("device.pci_bus_id_form"),
    mutant("device.other_warp", "the warp size is assumed, not asked")
        .properties(|call| call.changed(|it| it.warp_size = 64))
        .caught_by("device.warp_size_agrees"),
    mutant("device.no_processors", "counts are negative")
        .attribute(|call| call.answer_if(call.attribute == Attribute::MultiprocessorCount, -1))
        .caught_by("device.counts_are_positive"),
    mutant("device.flag_is_a_count", "a flag is 2")
        .attribute(|call| call.answer_if(call.attribute == Attribute::Integrated, 2))
        .caught_by("device.flags_are_bits"),
    mutant("device.denies_families", "attributes deny families that are there")
        .attribute(|call| call.answer_if(call.attribute == Attribute::VirtualMemoryManagement, 0))
        .caught_by("device.flags_agree_with_families"),
    mutant("device.idle_is_an_error", "synchronize_device refuses an idle device")
        .synchronize_device(errs_late)
        .caught_by("device.synchronize_idle"),
];

fn clamps_device<T>(call: &mut Call<'_, Result<T>>) -> Result<T> {
    let last = call.inner.device_count()?.saturating_sub(1);
    call.with(|it| it.device.0 = it.device.0.min(last))
}
