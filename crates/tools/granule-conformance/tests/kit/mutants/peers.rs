//! Backends that break rules of this area: other devices.

use super::errors::adopts_stream;
use super::*;

pub(crate) const MUTANTS: &[Mutant] = &[
    mutant("peers.any_peer", "a device that does not exist is no peer of anyone")
        .can_access(|call| Ok(call.go().unwrap_or(false)))
        .caught_by("peers.no_such_device"),
    mutant("peers.only_once", "enabling access again is an error")
        .enable_access(|call| call.refuse_as(ErrorKind::Other, !call.is_first((call.from, call.to))))
        .caught_by("peers.enabled_twice"),
    mutant("peers.unasked", "no device reaches another, yet access can be enabled")
        .can_access(|call| call.changed(|can| *can = false))
        .caught_by("peers.unreachable"),
    mutant("peers.one_byte_short", "copies between devices lose the last byte")
        .copy_peer_async(|call| call.with(|it| it.bytes = it.bytes.saturating_sub(1)))
        .caught_by("peers.copies"),
    mutant("peers.rounded_up", "copies between devices are rounded up to 512 bytes")
        // Allocations are not smaller than that.
        .copy_peer_async(|call| call.with(|it| it.bytes = it.bytes.next_multiple_of(512)))
        .caught_by("peers.copies_no_more"),
    mutant("peers.copy_waits", "queueing a copy between devices waits")
        .copy_peer_async(pauses)
        .caught_by("peers.copy_is_ordered"),
    mutant("peers.nothing_is_fine", "a copy of 0 bytes between devices is fine")
        .copy_peer_async(|call| call.answer_if(call.bytes == 0, ()))
        .caught_by("peers.copy_of_nothing"),
    mutant("peers.foreign_streams", "streams of other backends are taken for its own")
        .copy_peer_async(adopts_stream)
        .caught_by("peers.foreign_stream"),
    mutant("peers.device_left_behind", "enabling access leaves the device current")
        .enable_access(|call| call.leave_current(call.from))
        .caught_by("peers.current_device_stays"),
    mutant("peers.every_device", "access to a mapping is granted to every device with the first")
        .set_access(|call| call.with(|it| it.devices = &[DeviceIndex(0), DeviceIndex(1)]))
        .caught_by("peers.mapped_memory"),
];
