//! Ids, counts, attributes and the current device.

use crate::check::{checks, ensure, ensure_eq};
use crate::context::refused;
use crate::{Context, Stop, Verdict};
use backend_api::types::DeviceIndex;
use backend_api::{Attribute, DeviceGuard, ErrorKind, MAX_DEVICES};
use std::panic::{AssertUnwindSafe, catch_unwind};

checks! { Device;
    "device.id_is_stable": "id: the same at every call" => id_is_stable,
    "device.kind_is_stable": "kind: the same at every call" => kind_is_stable,
    "device.name_is_lower_case": "name: short, lower case, the same at every call" => name_is_lower_case,
    "device.count_is_stable": "device_count: the same at every call" => count_is_stable,
    "device.count_within_limit": "rule 9: 256 devices at most" => count_within_limit,
    "device.count_on_any_thread": "device_count: the same on every thread" => count_on_any_thread,
    "device.current_is_one_of_them": "current_device: one of the devices" => current_is_one_of_them,
    "device.current_on_new_thread":
        "current_device: a thread that never chose has a device too" => current_on_new_thread,
    "device.set_takes_effect": "set_device makes the device current" => set_takes_effect,
    "device.set_again": "set_device of the current device is fine" => set_again,
    "device.set_unknown_is_refused":
        "set_device: a device that is not there is InvalidValue" => set_unknown_is_refused,
    "device.set_unknown_changes_nothing":
        "rule 6: a refused set_device leaves the current device" => set_unknown_changes_nothing,
    "device.guard_restores": "a device guard restores the device on drop" => guard_restores,
    "device.guard_restores_on_panic":
        "a device guard restores the device when its scope panics" => guard_restores_on_panic,
    "device.guards_nest": "nested device guards restore in turn" => guards_nest,
    "device.context_exists_after_use":
        "has_primary_context: true once the device was used" => context_exists_after_use,
    "device.context_not_made_by_asking":
        "has_primary_context must not create it" => context_not_made_by_asking,
    "device.context_unknown_is_refused":
        "has_primary_context: a device that is not there is InvalidValue" => context_unknown_is_refused,
    "device.properties_have_a_name": "properties: the product's name" => properties_have_a_name,
    "device.properties_have_memory": "properties: total memory in bytes" => properties_have_memory,
    "device.properties_are_stable": "properties: the same at every call" => properties_are_stable,
    "device.properties_unknown_is_refused":
        "properties: a device that is not there is InvalidValue" => properties_unknown_is_refused,
    "device.total_memory_agrees":
        "properties and memory_info mean the same memory (within an eighth)" => total_memory_agrees,
    "device.uuids_differ": "properties: the uuid identifies the device" => uuids_differ,
    "device.pci_bus_id_form": "properties: domain:bus:device.function in hex" => pci_bus_id_form,
    "device.warp_size_agrees": "WarpSize is the properties' warp size" => warp_size_agrees,
    "device.counts_are_positive":
        "MultiprocessorCount and WarpSize are positive where answered" => counts_are_positive,
    "device.flags_are_bits": "attributes that say 'offered' are 0 or 1" => flags_are_bits,
    "device.flags_agree_with_families":
        "an attribute says 1 where its family is there" => flags_agree_with_families,
    "device.attribute_unknown_device_is_refused":
        "attribute: a device that is not there is InvalidValue" => attribute_unknown_device_is_refused,
    "device.synchronize_unknown_is_refused":
        "synchronize_device: a device that is not there is InvalidValue" => synchronize_unknown_is_refused,
    "device.synchronize_idle": "synchronize_device returns where nothing is queued" => synchronize_idle,
}

/// Asks the same question several times.
fn stable<T: PartialEq + std::fmt::Debug>(
    what: &str,
    mut ask: impl FnMut() -> Result<T, Stop>,
) -> Result<T, Stop> {
    let first = ask()?;
    for _ in 0..3 {
        ensure_eq!(ask()?, first, "{what}, asked again");
    }
    Ok(first)
}

fn id_is_stable(cx: &Context) -> Verdict {
    stable("id", || Ok(cx.backend().id())).map(drop)
}

fn count_within_limit(cx: &Context) -> Verdict {
    let count = cx.backend().device_count()?;
    ensure!(count <= MAX_DEVICES, "{count} devices, where Granule takes {MAX_DEVICES}");
    Ok(())
}

fn kind_is_stable(cx: &Context) -> Verdict {
    stable("kind", || Ok(cx.backend().kind())).map(drop)
}

fn name_is_lower_case(cx: &Context) -> Verdict {
    let name = stable("name", || Ok(cx.backend().name()))?;
    ensure!((1..=32).contains(&name.len()), "the name {name:?} is empty or longer than 32 bytes");
    ensure!(!name.contains(|c: char| c.is_uppercase() || c.is_whitespace()), "the name is {name:?}");
    Ok(())
}

fn count_is_stable(cx: &Context) -> Verdict {
    stable("device_count", || Ok(cx.backend().device_count()?)).map(drop)
}

fn count_on_any_thread(cx: &Context) -> Verdict {
    let here = cx.backend().device_count()?;
    let there = cx.on_thread(|cx| Ok(cx.backend().device_count()?))?;
    ensure_eq!(there, here, "device_count on another thread");
    Ok(())
}

fn current_is_one_of_them(cx: &Context) -> Verdict {
    cx.device()?;
    let (current, count) = (cx.backend().current_device()?, cx.backend().device_count()?);
    ensure!(current.0 < count, "the current device is {current} of {count}");
    Ok(())
}

fn current_on_new_thread(cx: &Context) -> Verdict {
    let device = cx.device()?;
    let count = cx.backend().device_count()?;
    cx.backend().set_device(device)?;
    let current = cx.on_thread(|cx| Ok(cx.backend().current_device()?))?;
    ensure!(current.0 < count, "a new thread's device is {current} of {count}");
    Ok(())
}

fn set_takes_effect(cx: &Context) -> Verdict {
    cx.device()?;
    let devices = cx.devices()?;
    for &device in devices.iter().rev().chain(&devices) {
        cx.backend().set_device(device)?;
        ensure_eq!(cx.backend().current_device()?, device, "the current device after set_device");
    }
    Ok(())
}

fn set_again(cx: &Context) -> Verdict {
    let device = cx.device()?;
    for _ in 0..3 {
        cx.backend().set_device(device)?;
    }
    ensure_eq!(cx.backend().current_device()?, device, "the current device");
    Ok(())
}

fn set_unknown_is_refused(cx: &Context) -> Verdict {
    cx.device()?;
    refused("set_device", cx.backend().set_device(cx.no_device()?), &[ErrorKind::InvalidValue])?;
    refused("set_device", cx.backend().set_device(DeviceIndex(u16::MAX)), &[ErrorKind::InvalidValue])?;
    Ok(())
}

/// Makes the last device current, so that falling back to the first one is seen.
fn last_device_current(cx: &Context) -> Result<DeviceIndex, Stop> {
    cx.device()?;
    let last = DeviceIndex(cx.backend().device_count()? - 1);
    cx.backend().set_device(last)?;
    Ok(last)
}

fn set_unknown_changes_nothing(cx: &Context) -> Verdict {
    let last = last_device_current(cx)?;
    ensure!(cx.backend().set_device(cx.no_device()?).is_err(), "set_device took an unknown device");
    ensure_eq!(cx.backend().current_device()?, last, "the current device after a refusal");
    Ok(())
}

fn guard_restores(cx: &Context) -> Verdict {
    let (first, second) = (cx.device()?, cx.second_device()?);
    cx.backend().set_device(first)?;
    {
        let guard = DeviceGuard::new(cx.backend(), second)?;
        ensure_eq!(guard.previous(), first, "the device before");
        ensure_eq!(cx.backend().current_device()?, second, "the current device inside");
    }
    ensure_eq!(cx.backend().current_device()?, first, "the current device afterwards");
    Ok(())
}

fn guard_restores_on_panic(cx: &Context) -> Verdict {
    let (first, second) = (cx.device()?, cx.second_device()?);
    cx.backend().set_device(first)?;
    let scope = || -> Verdict {
        let _guard = DeviceGuard::new(cx.backend(), second)?;
        // Unwinds like a panic, without a message on the terminal.
        std::panic::resume_unwind(Box::new("a check's own panic"))
    };
    ensure!(catch_unwind(AssertUnwindSafe(scope)).is_err(), "the guard could not be made");
    ensure_eq!(cx.backend().current_device()?, first, "the current device after a panic");
    Ok(())
}

fn guards_nest(cx: &Context) -> Verdict {
    let (first, second) = (cx.device()?, cx.second_device()?);
    cx.backend().set_device(second)?;
    let outer = DeviceGuard::new(cx.backend(), first)?;
    let inner = DeviceGuard::new(cx.backend(), second)?;
    ensure_eq!(inner.previous(), first, "the device before the inner guard");
    drop(inner);
    ensure_eq!(cx.backend().current_device()?, first, "the current device after the inner guard");
    drop(outer);
    ensure_eq!(cx.backend().current_device()?, second, "the current device after the outer guard");
    Ok(())
}

fn context_exists_after_use(cx: &Context) -> Verdict {
    for device in cx.devices()? {
        let _buffer = cx.buffer_on(device, 512)?;
        ensure!(cx.backend().has_primary_context(device)?, "device {device} is used and has no context");
    }
    Ok(())
}

fn context_not_made_by_asking(cx: &Context) -> Verdict {
    for device in cx.devices()? {
        stable("has_primary_context", || Ok(cx.backend().has_primary_context(device)?))?;
    }
    Ok(())
}

fn context_unknown_is_refused(cx: &Context) -> Verdict {
    let answer = cx.backend().has_primary_context(cx.no_device()?);
    refused("has_primary_context", answer, &[ErrorKind::InvalidValue]).map(drop)
}

fn properties_have_a_name(cx: &Context) -> Verdict {
    for device in cx.devices()? {
        let name = cx.backend().properties(device)?.name;
        ensure!(!name.trim().is_empty() && !name.contains('\0'), "device {device} is called {name:?}");
    }
    Ok(())
}

fn properties_have_memory(cx: &Context) -> Verdict {
    for device in cx.devices()? {
        ensure!(cx.backend().properties(device)?.total_memory > 0, "device {device} has no memory");
    }
    Ok(())
}

fn properties_are_stable(cx: &Context) -> Verdict {
    for device in cx.devices()? {
        stable("properties", || Ok(cx.backend().properties(device)?))?;
    }
    Ok(())
}

fn properties_unknown_is_refused(cx: &Context) -> Verdict {
    let answer = cx.backend().properties(cx.no_device()?);
    refused("properties", answer, &[ErrorKind::InvalidValue]).map(drop)
}

fn total_memory_agrees(cx: &Context) -> Verdict {
    for device in cx.devices()? {
        let said = cx.backend().properties(device)?.total_memory;
        let total = cx.backend().memory_info(device)?.total;
        ensure!(said.abs_diff(total) <= said / 8, "device {device} has {said} bytes, or {total}");
    }
    Ok(())
}

fn uuids_differ(cx: &Context) -> Verdict {
    let mut seen = Vec::new();
    for device in cx.devices()? {
        let Some(uuid) = cx.backend().properties(device)?.uuid else {
            return Err(Stop::Skipped("the driver has no uuids".into()));
        };
        ensure!(!seen.contains(&uuid), "device {device} has another one's uuid");
        seen.push(uuid);
    }
    Ok(())
}

fn pci_bus_id_form(cx: &Context) -> Verdict {
    for device in cx.devices()? {
        let Some(id) = cx.backend().properties(device)?.pci_bus_id else {
            return Err(Stop::Skipped("the driver has no PCI ids".into()));
        };
        let parts: Vec<&str> = id.split([':', '.']).collect();
        let hex = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_hexdigit());
        let separators: String = id.chars().filter(|c| !c.is_ascii_hexdigit()).collect();
        ensure!(separators == "::." && parts.iter().all(hex), "device {device} is at {id:?}");
    }
    Ok(())
}

/// An attribute's value; `None` where the backend has no answer.
fn answer(cx: &Context, device: DeviceIndex, attribute: Attribute) -> Result<Option<i64>, Stop> {
    match cx.backend().attribute(device, attribute) {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind == ErrorKind::NotSupported => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn warp_size_agrees(cx: &Context) -> Verdict {
    for device in cx.devices()? {
        let said = i64::from(cx.backend().properties(device)?.warp_size);
        ensure!(said > 0, "device {device} has warps of {said} threads");
        if let Some(value) = answer(cx, device, Attribute::WarpSize)? {
            ensure_eq!(value, said, "the warp size of device {device}");
        }
    }
    Ok(())
}

fn counts_are_positive(cx: &Context) -> Verdict {
    for device in cx.devices()? {
        for attribute in [Attribute::MultiprocessorCount, Attribute::WarpSize] {
            let value = answer(cx, device, attribute)?;
            ensure!(value.is_none_or(|v| v > 0), "{attribute:?} of device {device} is {value:?}");
        }
    }
    Ok(())
}

const FLAGS: [Attribute; 5] = [
    Attribute::VirtualMemoryManagement,
    Attribute::PosixFileDescriptorHandles,
    Attribute::FabricHandles,
    Attribute::GpuDirectRdmaWithVirtualMemory,
    Attribute::Integrated,
];

fn flags_are_bits(cx: &Context) -> Verdict {
    for device in cx.devices()? {
        for flag in FLAGS {
            let value = answer(cx, device, flag)?;
            ensure!(value.is_none_or(|v| v == 0 || v == 1), "{flag:?} of device {device} is {value:?}");
        }
        let node = answer(cx, device, Attribute::MemoryNode)?;
        ensure!(node.is_none_or(|node| node >= -1), "the memory of device {device} is node {node:?}");
    }
    Ok(())
}

fn flags_agree_with_families(cx: &Context) -> Verdict {
    let (device, backend) = (cx.device()?, cx.backend());
    let (flag, is_there) = (Attribute::VirtualMemoryManagement, backend.virtual_memory().is_ok());
    let said = answer(cx, device, flag)?;
    ensure!(!is_there || said != Some(0), "{flag:?} is {said:?}, and the family is there");
    Ok(())
}

fn attribute_unknown_device_is_refused(cx: &Context) -> Verdict {
    let answer = cx.backend().attribute(cx.no_device()?, Attribute::WarpSize);
    refused("attribute", answer, &[ErrorKind::InvalidValue]).map(drop)
}

fn synchronize_unknown_is_refused(cx: &Context) -> Verdict {
    let answer = cx.backend().synchronize_device(cx.no_device()?);
    refused("synchronize_device", answer, &[ErrorKind::InvalidValue]).map(drop)
}

fn synchronize_idle(cx: &Context) -> Verdict {
    for device in cx.devices()? {
        cx.backend().synchronize_device(device)?;
    }
    Ok(())
}
