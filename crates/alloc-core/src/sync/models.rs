//! The small kernels under loom, which tries out all orders of a few threads, also those that only weakly ordered
//! processors see. Other modules have models of their own beside them.

use super::{Arc, AtomicBool, AtomicU64, Claims, Ordering, Transit, Turns};
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
struct Shared {
    transit: Transit<u32>,
    begun: AtomicBool,
    value: AtomicU64,
}

/// A thread that moves something: `value` changes while it holds a ticket.
fn mover(shared: &Arc<Shared>, what: u32) -> loom::thread::JoinHandle<()> {
    let shared = Arc::clone(shared);
    spawn(move || {
        let ticket = shared.transit.begin(what);
        shared.begun.store(true, Ordering::Release);
        shared.value.fetch_add(1, Ordering::Relaxed);
        drop(ticket);
    })
}

#[test]
fn who_waits_sees_what_was_under_way_done() {
    check(|| {
        let shared = Arc::new(Shared::default());
        let mover = mover(&shared, 2);
        // Its own, of another kind, is not waited for.
        let _mine = shared.transit.begin(1);
        let begun = shared.begun.load(Ordering::Acquire);
        assert_eq!(shared.transit.wait_for(|what| what == 2, || None::<()>), None);
        if begun {
            assert_eq!(shared.value.load(Ordering::Relaxed), 1);
        }
        mover.join().expect("the mover ends well");
    });
}

#[test]
fn nobody_misses_the_end_of_the_last_of_several() {
    check(|| {
        let shared = Arc::new(Shared::default());
        let movers = [mover(&shared, 2), mover(&shared, 2)];
        shared.transit.wait_for(|_| true, || None::<()>);
        movers.into_iter().for_each(|mover| mover.join().expect("the mover ends well"));
        assert!(!shared.transit.concerns(2));
        assert_eq!(shared.value.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn a_quiet_while_was_quiet() {
    check(|| {
        let shared = Arc::new(Shared::default());
        let mover = mover(&shared, 2);
        let mark = shared.transit.now();
        let before = shared.value.load(Ordering::Relaxed);
        let mine = shared.transit.begin(1);
        let after = shared.value.load(Ordering::Relaxed);
        drop(mine);
        if shared.transit.only_since(mark, 1) {
            assert_eq!(before, after, "nobody else moved anything");
        }
        mover.join().expect("the mover ends well");
        assert!(shared.transit.only_since(shared.transit.now(), 1));
    });
}

#[test]
fn one_turn_at_a_time() {
    check(|| {
        let shared = Arc::new((Turns::default(), AtomicBool::new(false), AtomicU64::new(0)));
        let takes = |shared: Arc<(Turns, AtomicBool, AtomicU64)>| {
            move || {
                let (turns, inside, done) = &*shared;
                let turn = turns.take(7).expect("the thread has none");
                assert!(!inside.swap(true, Ordering::Relaxed), "alone");
                let before = done.load(Ordering::Relaxed);
                done.store(before + 1, Ordering::Relaxed);
                assert_eq!(
                    turn.after_another,
                    before > 0,
                    "who comes later knows, and sees what the other did"
                );
                inside.store(false, Ordering::Relaxed);
                drop(turn);
            }
        };
        let others = [spawn(takes(Arc::clone(&shared))), spawn(takes(Arc::clone(&shared)))];
        others.into_iter().for_each(|other| other.join().expect("each gets its turn"));
        assert_eq!(shared.2.load(Ordering::Relaxed), 2, "nothing is lost");
    });
}

#[test]
fn one_claim_at_a_time_and_nobody_waits_for_ever() {
    check(|| {
        let shared = Arc::new((Claims::default(), AtomicU64::new(0)));
        let claims = |shared: Arc<(Claims<u16>, AtomicU64)>| {
            move || {
                let (claims, done) = &*shared;
                let claim = claims.take_all(&[7].into()).expect("the thread has none");
                let before = done.load(Ordering::Relaxed);
                done.store(before + 1, Ordering::Relaxed);
                drop(claim);
            }
        };
        let others = [spawn(claims(Arc::clone(&shared))), spawn(claims(Arc::clone(&shared)))];
        others.into_iter().for_each(|other| other.join().expect("each gets it"));
        assert_eq!(shared.1.load(Ordering::Relaxed), 2, "each saw what the one before did");
        assert!(shared.0.take_all(&[7].into()).is_ok(), "it is free again");
    });
}
