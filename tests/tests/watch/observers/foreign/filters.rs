//! Filters of pools that end while a request asks them.

use super::{Code, Conduct, Place, machine};
use alloc_core::config::Settings;
use alloc_core::pool::Filter;
use alloc_core::types::PoolId;
use granule_tests::pinned;
use granule_tests::policy::Policy;
use granule_tests::rig::{DEVICE, on_each};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, mpsc};

/// A filter whose scope ends while it is asked, and which has a bug in its destructor: the request, which is the last to
/// know of it, is served all the same.
fn a_filter_ends_under(
    begin: impl FnOnce(Filter),
    request: impl FnOnce() -> bool + Send,
    end: impl FnOnce() + Send,
) {
    let code = Code::new(Conduct::Panics { at: 1 });
    let place = Place { looked_up: None, ends: Some(Arc::clone(&code)) };
    let (asked, asks) = mpsc::channel();
    let (go, goes) = mpsc::channel();
    let goes = Mutex::new(goes);
    begin(Filter::Custom(Arc::new(move |_| {
        let _owned = &place;
        asked.send(()).unwrap();
        goes.lock().unwrap().recv().unwrap();
        false
    })));
    std::thread::scope(|scope| {
        let request = scope.spawn(|| catch_unwind(AssertUnwindSafe(request)));
        asks.recv().unwrap();
        end();
        go.send(()).unwrap();
        let served = request.join().unwrap();
        assert!(matches!(served, Ok(true)), "the request has nothing to do with that");
    });
    assert_eq!(code.calls(), 1, "the filter has ended");
}

fn a_filter_that_ends_under_a_request_does_not_concern_it<P: Policy>() {
    on_each(&machine(), |rig| {
        let (allocator, stream) = (rig.with_policy::<P>(Settings::default()), rig.stream());
        let pool = PoolId::fresh();
        a_filter_ends_under(
            |filter| allocator.pools().begin(DEVICE, pool, filter).unwrap(),
            || allocator.malloc(1000, stream).and_then(|ptr| allocator.free(ptr)).is_ok(),
            || allocator.pools().end(DEVICE, pool).unwrap(),
        );
        let (host, pool) = (pinned::host(rig, &Settings::default()), PoolId::fresh());
        a_filter_ends_under(
            |filter| host.begin_pool(pool, &filter).unwrap(),
            || host.allocate_for(3000, stream).and_then(|block| host.free(block.id)).is_ok(),
            || host.end_pool(pool).unwrap(),
        );
    });
}

granule_tests::for_each_policy!(a_filter_that_ends_under_a_request_does_not_concern_it);
