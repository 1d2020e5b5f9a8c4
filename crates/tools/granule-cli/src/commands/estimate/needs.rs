//! What a recorded program needs, under each way to allocate.

use crate::allocator_args::native;
use crate::failure::Failure;
use granule::config::{Flavour, PolicyName, Settings, environment, pytorch};
use granule_analysis::replay::whatif::Card;
use granule_analysis::replay::{ReplayError, ReplayOptions, min_capacity, replay};
use granule_snapshot::trace::Trace;
use rayon::prelude::*;
use serde::Serialize;

/// How exact the smallest device is: large blocks of a device come in such units.
const STEP: u64 = 2 << 20;

/// A way to allocate.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    name: &'static str,
    settings: Settings,
}

/// PyTorch's defaults, its expandable segments, what the environment asks for if that is something else, and Granule.
pub(crate) fn ways() -> Vec<Way> {
    let pytorch =
        |name, text: &str, settings| Way { name, settings: Settings { text: text.into(), ..settings } };
    let expandable = Settings { expandable_segments: true, ..Settings::default() };
    let mut ways = vec![
        pytorch("PyTorch", "", Settings::default()),
        pytorch("PyTorch", "expandable_segments:True", expandable),
    ];
    if let Some(settings) = yours().filter(|yours| ways.iter().all(|way| way.settings.text != yours.text)) {
        ways.push(Way { name: "PyTorch", settings });
    }
    let granule = Settings { policy: Some(PolicyName::Granule), ..Settings::default() };
    ways.push(pytorch("Granule", "policy:granule", granule));
    ways
}

/// The environment's settings, as PyTorch reads them.
fn yours() -> Option<Settings> {
    let text = environment::PYTORCH_VARIABLES.into_iter().find_map(|name| std::env::var(name).ok())?;
    let settings = pytorch::parse(&text, &Settings::default(), Flavour::Cuda).ok()?.settings;
    Some(native(Settings { text, policy: None, ..settings }))
}

/// What it needs, one way. Bytes unless said otherwise.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Need {
    /// Whose allocator.
    pub(crate) allocator: &'static str,
    /// Its settings; empty for the defaults.
    pub(crate) conf: String,
    /// Most that is held where there is plenty.
    pub(crate) reserved_bytes_peak: u64,
    /// The least on which nothing is refused, the context not included.
    pub(crate) min_capacity: u64,
    /// The smallest card, context included; null if none of the list is large enough.
    pub(crate) card: Option<&'static Card>,
    /// How often the cache is flushed on that card to make room.
    pub(crate) retries_on_card: Option<u64>,
}

/// Works out all ways at once; `context` is what a device loses before the first request.
pub(crate) fn needs(name: &str, trace: &Trace, context: u64) -> Result<Vec<Need>, Failure> {
    let found: Result<Vec<_>, ReplayError> = ways().par_iter().map(|way| need(trace, way, context)).collect();
    found.map_err(|error| Failure::replay(name, error))
}

fn need(trace: &Trace, way: &Way, context: u64) -> Result<Need, ReplayError> {
    let header = &trace.header;
    let peak = header.peak_live_requested.unwrap_or_default();
    // Plenty: as much as there can be, twice, but no more than as if nothing were used again. Each private pool may take
    // addresses for a whole device.
    let all = header.bytes_requested_in_all.unwrap_or_default().saturating_mul(2);
    let all = all.saturating_add(header.allocs.unwrap_or_default().saturating_mul(40 << 20)).max(4 << 30);
    let plenty = (1 << 40).max(peak.saturating_mul(4).min(1 << 44)).min(all);
    let on = |capacity| ReplayOptions {
        capacity: Some(capacity),
        settings: way.settings.clone(),
        // The simulator's own figures are not asked for.
        unwatched: true,
        ..ReplayOptions::default()
    };
    let free = replay(trace, &on(plenty), |_| {})?.result;
    let min = min_capacity(trace, &on(plenty), STEP, |_| {})?.min_capacity;
    let card = Card::smallest(min.saturating_add(context));
    let retries =
        card.map(|card| replay(trace, &on(card.usable.saturating_sub(context)), |_| {})).transpose()?;
    Ok(Need {
        allocator: way.name,
        conf: way.settings.text.clone(),
        reserved_bytes_peak: free.reserved_bytes_peak.unsigned_abs(),
        min_capacity: min,
        card,
        retries_on_card: retries.map(|replay| replay.result.num_alloc_retries.unsigned_abs()),
    })
}
