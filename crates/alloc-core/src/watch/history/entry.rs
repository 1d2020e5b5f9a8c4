//! From records to the entries of snapshots.

use super::ring::{Details, Record};
use crate::sync::{Arc, OnceLock};
use crate::types::PoolId;
use crate::watch::snapshot::{Labels, TraceEntry};
use rustc_hash::FxHashMap;

/// An entry of a snapshot, without its frames.
pub(crate) fn entry(
    record: &Record,
    details: Option<&Details>,
    stream: u64,
    time_us: i64,
    labels: Arc<Labels>,
) -> TraceEntry {
    let Record { action, addr, size, .. } = *record;
    debug_assert!(
        details.is_none_or(|d| d.internal.is_none() == labels.extra.is_empty()),
        "labels are the entry's"
    );
    TraceEntry { action, addr, size, stream, time_us, labels, frames: None }
}

/// Gives entries that say the same one shared set of labels.
#[derive(Debug, Default)]
pub(crate) struct Labelling {
    /// Labels of entries without details, by pool.
    plain: FxHashMap<PoolId, Arc<Labels>>,
}

impl Labelling {
    pub(crate) fn labels(&mut self, details: Option<&Details>, pool: PoolId) -> Arc<Labels> {
        let Some(details) = details.filter(|details| details.says_something()) else {
            let make = || Arc::new(labels(&Details::default(), pool));
            return Arc::clone(self.plain.entry(pool).or_insert_with(make));
        };
        Arc::new(labels(details, details.pool.unwrap_or(pool)))
    }
}

/// Labels of an entry.
pub(super) fn labels(details: &Details, pool: PoolId) -> Labels {
    static OUTSIDE: OnceLock<Arc<str>> = OnceLock::new();
    static NONE: OnceLock<Arc<str>> = OnceLock::new();
    let compiled = details.compiled.as_ref().unwrap_or_else(|| OUTSIDE.get_or_init(|| "N/A".into()));
    let metadata = details.metadata.as_ref().unwrap_or_else(|| NONE.get_or_init(|| "".into()));
    Labels {
        compile_context: Some(Arc::clone(compiled)),
        user_metadata: Some(Arc::clone(metadata)),
        pool_id: Some(pool),
        extra: details.internal.map(|why| ("internal_metadata".into(), why.into())).into_iter().collect(),
    }
}
