//! The small kernels under loom, which tries out all orders of a few threads, also those that only weakly ordered
//! processors see. Other modules have models of their own beside them.

use super::{Arc, AtomicBool, AtomicU64, Attempt, InFlight, Ordering, SlowPath};
use loom::model::Builder;
use loom::thread::spawn;

/// Runs a model in all orders with up to four preemptions; with `GRANULE_LONG`, with up to seven.
pub(crate) fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(if std::env::var_os("GRANULE_LONG").is_some() { 7 } else { 4 });
    builder.max_branches = 20_000;
    builder.check(model);
}

#[derive(Default)]
struct Scene {
    slow_path: SlowPath,
    begun: AtomicBool,
    value: AtomicU64,
}

/// A thread that moves memory: `value` changes while it has memory in flight.
fn mover(shared: &Arc<Scene>) -> loom::thread::JoinHandle<()> {
    let shared = Arc::clone(shared);
    spawn(move || {
        let memory = shared.slow_path.begin();
        shared.begun.store(true, Ordering::Release);
        shared.value.fetch_add(1, Ordering::Relaxed);
        drop(memory);
    })
}

#[test]
fn who_waits_sees_what_was_in_flight_landed() {
    check(|| {
        let shared = Arc::new(Scene::default());
        let mover = mover(&shared);
        // Its own flight is not waited for.
        let _mine = shared.slow_path.begin();
        let begun = shared.begun.load(Ordering::Acquire);
        shared.slow_path.wait_for_others();
        if begun {
            assert_eq!(shared.value.load(Ordering::Relaxed), 1);
        }
        mover.join().expect("the mover ends well");
    });
}

#[test]
fn nobody_misses_the_end_of_the_last_of_several() {
    check(|| {
        let shared = Arc::new(Scene::default());
        let movers = [mover(&shared), mover(&shared)];
        shared.slow_path.wait_for_others();
        movers.into_iter().for_each(|mover| mover.join().expect("the mover ends well"));
        assert!(!shared.slow_path.is_nested());
        assert_eq!(shared.value.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn a_quiet_while_was_quiet() {
    check(|| {
        let shared = Arc::new(Scene::default());
        let mover = mover(&shared);
        let mark = shared.slow_path.now();
        let before = shared.value.load(Ordering::Relaxed);
        let mine = shared.slow_path.begin();
        let after = shared.value.load(Ordering::Relaxed);
        drop(mine);
        if shared.slow_path.only_mine_since(mark) {
            assert_eq!(before, after, "nobody else moved anything");
        }
        mover.join().expect("the mover ends well");
        assert!(shared.slow_path.only_mine_since(shared.slow_path.now()));
    });
}

/// Takes one of `value`, as a miss does: its whole attempts move memory themselves, and so disturb those of others.
fn wants(shared: &Arc<Scene>) -> loom::thread::JoinHandle<bool> {
    let shared = Arc::clone(shared);
    spawn(move || {
        let one_less = |value: u64| value.checked_sub(1);
        let served = shared.slow_path.until_final(|attempt| {
            let _memory = (attempt != Attempt::Search).then(|| shared.slow_path.begin());
            let taken = shared.value.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less).is_ok();
            Ok::<_, ()>(taken.then_some(()))
        });
        served.is_ok_and(|served| served.is_some())
    })
}

#[test]
fn nobody_is_refused_what_was_in_flight() {
    check(|| {
        let shared = Arc::new(Scene::default());
        let memory = shared.slow_path.begin();
        let threads = [wants(&shared), wants(&shared)];
        shared.value.store(2, Ordering::Release);
        drop(memory);
        assert!(threads.into_iter().all(|thread| thread.join().expect("it ends")));
    });
}

#[test]
fn threads_that_overtake_each_other_come_to_an_end() {
    check(|| {
        let shared = Arc::new(Scene::default());
        let threads = [wants(&shared), wants(&shared)];
        assert!(threads.into_iter().all(|thread| !thread.join().expect("it ends")), "there is nothing");
    });
}

#[test]
fn one_thread_at_a_time_and_nobody_waits_for_ever() {
    check(|| {
        let shared = Arc::new((InFlight::default(), AtomicBool::new(false), AtomicU64::new(0)));
        let takes = |shared: Arc<(InFlight<u16>, AtomicBool, AtomicU64)>| {
            move || {
                let (work, inside, done) = &*shared;
                let alone = work.begin_alone(&[7].into()).expect("the thread has nothing else");
                assert!(!inside.swap(true, Ordering::Relaxed), "alone");
                done.store(done.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                inside.store(false, Ordering::Relaxed);
                drop(alone);
            }
        };
        let others = [spawn(takes(Arc::clone(&shared))), spawn(takes(Arc::clone(&shared)))];
        others.into_iter().for_each(|other| other.join().expect("each gets it"));
        assert_eq!(shared.2.load(Ordering::Relaxed), 2, "each saw what the one before did");
        assert!(shared.0.begin_alone(&[7].into()).is_ok(), "it is free again");
    });
}
