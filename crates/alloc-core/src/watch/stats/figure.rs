//! The tables of figures: a row has a figure's name, meaning, unit and metric. The field of the statistics, PyTorch's
//! flat keys and the metrics follow from it, and by `cargo xtask codegen` the C struct and Python's.

use super::quantity::{DurationStat, Stat, StatArray};
use std::collections::BTreeMap;

/// Unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Things; the name says which.
    Count,
    /// Parts of one.
    Ratio,
    /// Seconds.
    Seconds,
}

/// A figure of the statistics `S`.
#[derive(Debug)]
pub struct Figure<S> {
    /// Its field, which is PyTorch's key where PyTorch has it.
    pub name: &'static str,
    /// PyTorch does not have it.
    pub is_own: bool,
    /// Its name as a metric, without a unit.
    pub metric: &'static str,
    /// The unit.
    pub unit: Unit,
    /// Its accessor.
    pub read: Read<S>,
    pub(crate) docs: &'static str,
}

/// Accessor of a figure, which also gives its kind.
#[derive(Debug)]
pub enum Read<S> {
    /// A running sum.
    Counter(fn(&S) -> &i64),
    /// A level.
    Gauge(fn(&S) -> &i64),
    /// A quantity over time.
    Stat(fn(&S) -> &Stat),
    /// A quantity over time, in total and by tier.
    Array(fn(&S) -> &StatArray),
    /// A duration.
    Time(fn(&S) -> &DurationStat),
}

/// One value of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FigureValue {
    /// PyTorch's pool, where it is one tier's or their total.
    pub pool: Option<&'static str>,
    /// Name of the value, where a figure has several: `peak`.
    pub part: Option<&'static str>,
    /// The value.
    pub value: i64,
}

impl<S> Figure<S> {
    /// One sentence about it, without its full stop.
    #[must_use]
    pub fn help(&self) -> &'static str {
        self.docs.trim().trim_end_matches('.')
    }

    /// Its values.
    #[must_use]
    pub fn values(&self, stats: &S) -> Vec<FigureValue> {
        match self.read {
            Read::Counter(read) | Read::Gauge(read) => {
                vec![FigureValue { pool: None, part: None, value: *read(stats) }]
            }
            Read::Stat(read) => parts(None, &read(stats).parts()).collect(),
            Read::Array(read) => read(stats).values(),
            Read::Time(read) => parts(None, &read(stats).parts()).collect(),
        }
    }
}

fn parts(pool: Option<&'static str>, parts: &[(&'static str, i64)]) -> impl Iterator<Item = FigureValue> {
    parts.iter().map(move |(part, value)| FigureValue { pool, part: Some(part), value: *value })
}

impl StatArray {
    /// Its values.
    #[must_use]
    pub fn values(&self) -> Vec<FigureValue> {
        let tiers = [("all", &self.all), ("small_pool", &self.small_pool), ("large_pool", &self.large_pool)];
        tiers.iter().flat_map(|(pool, stat)| parts(Some(pool), &stat.parts()).collect::<Vec<_>>()).collect()
    }
}

/// A value's flat key: `allocated_bytes.all.peak`.
pub(super) fn key(name: &str, value: &FigureValue) -> String {
    [Some(name), value.pool, value.part].into_iter().flatten().collect::<Vec<_>>().join(".")
}

/// PyTorch's figures under their flat keys.
pub(crate) fn flat<S>(figures: &[Figure<S>], stats: &S) -> BTreeMap<String, i64> {
    let pytorchs = figures.iter().filter(|figure| !figure.is_own);
    pytorchs
        .flat_map(|figure| {
            figure.values(stats).into_iter().map(|value| (key(figure.name, &value), value.value))
        })
        .collect()
}

/// The type of a figure.
macro_rules! shape {
    (Counter) => {
        i64
    };
    (Gauge) => {
        i64
    };
    (Stat) => {
        $crate::watch::stats::Stat
    };
    (Array) => {
        $crate::watch::stats::StatArray
    };
    (Time) => {
        $crate::watch::stats::DurationStat
    };
}
pub(crate) use shape;

/// Makes the statistics of the rows `name: shape unit "metric"`, those of PyTorch first, then Granule's own. The first
/// line of documentation above a row is the metric's help, too. Fields that are no figures come after `also`.
macro_rules! figures {
    (
        $(#[$about:meta])*
        $stats:ident {
            $(
                #[doc = $docs:literal] $(#[doc = $more:literal])*
                $name:ident: $shape:ident $unit:ident $metric:literal,
            )+
            $(also $($(#[$about_also:meta])* $also:ident: $type:ty,)+)?
        }
        $(#[$about_own:meta])*
        $own_stats:ident {
            $(
                #[doc = $own_docs:literal] $(#[doc = $own_more:literal])*
                $own:ident: $own_shape:ident $own_unit:ident $own_metric:literal,
            )+
        }
    ) => {
        $(#[$about])*
        pub struct $stats {
            $(
                #[doc = $docs] $(#[doc = $more])*
                pub $name: $crate::watch::stats::figure::shape!($shape),
            )+
            $($($(#[$about_also])* pub $also: $type,)+)?
            /// Granule's own figures.
            pub granule: $own_stats,
        }

        $(#[$about_own])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
        pub struct $own_stats {
            $(
                #[doc = $own_docs] $(#[doc = $own_more])*
                pub $own: $crate::watch::stats::figure::shape!($own_shape),
            )+
        }

        impl $stats {
            /// Descriptions of all figures.
            #[must_use]
            pub fn figures() -> &'static [$crate::watch::stats::Figure<Self>] {
                use $crate::watch::stats::{Figure, Read, Unit};
                static FIGURES: &[Figure<$stats>] = &[
                    $(Figure {
                        name: stringify!($name),
                        is_own: false,
                        metric: $metric,
                        unit: Unit::$unit,
                        read: Read::$shape(|stats| &stats.$name),
                        docs: $docs,
                    },)+
                    $(Figure {
                        name: stringify!($own),
                        is_own: true,
                        metric: $own_metric,
                        unit: Unit::$own_unit,
                        read: Read::$own_shape(|stats| &stats.granule.$own),
                        docs: $own_docs,
                    },)+
                ];
                FIGURES
            }
        }
    };
}
pub(crate) use figures;
