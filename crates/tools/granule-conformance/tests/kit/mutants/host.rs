//! Backends that break rules of this area: page-locked host memory.

use super::memory::base_is_pointer;
use super::*;

pub(crate) const MUTANTS: &[Mutant] = &[
    mutant("host.nothing_is_null", "a request for 0 bytes gives null")
        .host_malloc(|call| call.answer_if(call.bytes == 0, DevicePtr::NULL))
        .caught_by("host.malloc_of_nothing"),
    mutant("host.small_is_null", "small requests give null")
        .host_malloc(|call| call.answer_if(call.bytes == 1, DevicePtr::NULL))
        .caught_by("host.malloc_is_not_null"),
    mutant("host.odd_addresses", "memory is aligned to 32 bytes")
        .host_malloc(shifts_up::<32>)
        .host_free(shifts_down::<32>)
        .caught_by("host.aligned"),
    mutant("host.never_reads_it", "copies from page-locked memory move nothing")
        .copy(|call| call.moves_unless(is_host(call.inner, call.src)))
        .caught_by("host.copies_to_device"),
    mutant("host.never_writes_it", "copies to page-locked memory move nothing")
        .copy(|call| call.moves_unless(is_host(call.inner, call.dst)))
        .caught_by("host.copies_from_device"),
    mutant("host.stale_reads", "small copies from page-locked memory move nothing")
        .copy(|call| call.moves_unless(call.bytes < 512 && is_host(call.inner, call.src)))
        .caught_by("host.the_host_writes_it"),
    mutant("host.hands_out_twice", "memory that is held is handed out again")
        .host_malloc(|call| if (1..=SHARED).contains(&call.bytes) { call.share(SHARED) } else { call.go() })
        .host_free(|call| call.answer_if(call.is_shared(call.ptr), ()))
        .caught_by("host.disjoint"),
    mutant("host.sizes_wrap", "sizes have 32 bits")
        .host_malloc(|call| call.with(|it| it.bytes = (it.bytes & 0xFFFF_FFFF).max(512)))
        .caught_by("host.malloc_more_than_there_is"),
    mutant("host.sticky_malloc", "a refused host_malloc leaves an error for the next call")
        .host_malloc(leaves_its_error)
        .enter(strikes)
        .caught_by("host.works_after_refusal"),
    mutant("host.no_write_combined", "WRITE_COMBINED is refused")
        .host_malloc(|call| call.refuse_if(call.host_flags == HostFlags::WRITE_COMBINED))
        .caught_by("host.each_flag_works"),
    mutant("host.null_is_invalid", "null cannot be freed")
        .host_free(|call| call.refuse_if(call.ptr.is_null()))
        .caught_by("host.free_null"),
    mutant("host.of_first_device", "page-locked memory is said to be of device 0")
        .pointer_info(|call| call.said_of(PointerKind::Host, |it| it.device = Some(DeviceIndex(0))))
        .caught_by("host.pointer_info_of_base"),
    mutant("host.base_is_pointer", "every address is said to be a base")
        .pointer_info(|call| base_is_pointer(call, PointerKind::Host))
        .caught_by("host.pointer_info_of_inside"),
    mutant("host.free_leaks", "host_free gives nothing back")
        .host_free(does_nothing)
        .caught_by("host.freed_is_unmanaged"),
    mutant("host.first_device_only", "only device 0 reaches page-locked memory")
        .copy_async(|call| {
            let host = is_host(call.inner, call.dst) || is_host(call.inner, call.src);
            call.answer_if(host && call.stream.device.0 > 0, ())
        })
        .caught_by("host.every_device_reaches_it"),
];

fn is_host(inner: &dyn Backend, ptr: DevicePtr) -> bool {
    inner.pointer_info(ptr).is_ok_and(|info| info.kind == PointerKind::Host)
}

/// The size of the memory that everyone gets.
const SHARED: u64 = 128 << 10;
