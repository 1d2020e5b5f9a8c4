//! The verdict: what a run came to, in at most three sentences.

use super::growth::{Marks, Suspect};
use super::place::{Caller, Place};
use super::refused::{Refused, Verdict};
use super::{Figures, Inspection};
use alloc_core::round::size_text;
use granule_snapshot::convert::RECORD;
use serde::Serialize;

/// What was reserved and never live is worth a word from this part of it on.
const MUCH: u64 = 10;

/// A run in at most three sentences: the peak, why a request was refused, what would help. `text` has the sentences, the other
/// fields what they are made of.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The sentences.
    pub text: String,
    /// Most live bytes.
    pub peak_live: u64,
    /// Most reserved bytes; 0 where the file does not say what was reserved.
    pub peak_reserved: u64,
    /// The device's memory, as far as it is known.
    pub capacity: Option<u64>,
    /// Whether earlier history is missing, so that peaks are lower bounds.
    pub lower_bounds: bool,
    /// Requests that were refused.
    pub refused: u64,
    /// Why the first of them was.
    pub why: Option<Verdict>,
    /// What would help.
    pub help: Help,
}

/// What would help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Help {
    /// `expandable_segments:True`.
    ExpandableSegments,
    /// One block less, which is named.
    OneBlockLess,
    /// Fewer live bytes, or a larger device.
    NeedLess,
    /// To find out what becomes more with every iteration.
    StopGrowth,
    /// A higher memory limit.
    RaiseLimit,
    /// Settings, which `granule whatif` tries.
    OtherSettings,
    /// Nothing: all is well.
    Nothing,
}

impl Summary {
    /// That of an inspection, on a device of `capacity` bytes. `lower_bounds` says that earlier history is missing. `tried` is what
    /// settings were seen to do, where they were tried: it takes the place of advice to try them.
    #[must_use]
    pub fn new(
        inspection: &Inspection,
        capacity: Option<u64>,
        lower_bounds: bool,
        tried: Option<&str>,
    ) -> Self {
        let figures = &inspection.run;
        let refused = inspection.refused.as_ref();
        let (help, advice) = match refused {
            Some(refused) => help_for_refused(refused, inspection),
            None => help_for_served(inspection),
        };
        let (help, advice) = match (help, tried) {
            (Help::ExpandableSegments | Help::OtherSettings, Some(tried)) => {
                (Help::OtherSettings, tried.to_owned())
            }
            // What is not the whole run, granule whatif does not judge.
            (Help::ExpandableSegments, None) if lower_bounds => {
                (help, "expandable_segments:True lets free memory be joined and change hands.".into())
            }
            (Help::OtherSettings, None) if lower_bounds => (
                help,
                format!(
                    "Which settings need less is seen where the run is recorded from its start: {RECORD}."
                ),
            ),
            _ => (help, advice),
        };
        // Settings put off what grows, and do not end it.
        let grows = leak(inspection).filter(|_| refused.is_some() && help != Help::StopGrowth);
        let advice = grows.map_or(advice.clone(), |(_, grows)| format!("{grows} {advice}"));
        let mut sentences =
            vec![peak(figures, capacity, lower_bounds), refusals(figures, refused, lower_bounds), advice];
        if lower_bounds && figures.entries == 0 {
            let (live, reserved) = (figures.live_at_end, figures.reserved_at_end);
            let cached = size_text(reserved.saturating_sub(live));
            sentences = vec![
                format!(
                    "{} are live and {} reserved, of which {cached} are not live.",
                    size_text(live),
                    size_text(reserved)
                ),
                "The snapshot has no history: it shows one moment, not the peak, nor who was refused.".into(),
                format!(
                    "For these, and for what settings would do, record the run from its start: {RECORD}."
                ),
            ];
        }
        Self {
            text: sentences.join(" ").trim_end().to_owned(),
            peak_live: figures.peak_live,
            peak_reserved: figures.peak_reserved,
            capacity,
            lower_bounds,
            refused: figures.refused,
            why: refused.map(|refused| refused.verdict),
            help,
        }
    }
}

fn peak(figures: &Figures, capacity: Option<u64>, lower_bounds: bool) -> String {
    let live = size_text(figures.peak_live);
    let reserved = match figures.peak_reserved {
        0 => String::new(),
        most => format!(" and {} reserved", size_text(most)),
    };
    let device = capacity.map(|all| format!(", of {}", size_text(all))).unwrap_or_default();
    if lower_bounds {
        format!("At least {live} were live at once{reserved}{device}: a part of the run was not recorded.")
    } else {
        format!("At most {live} were live at once{reserved}{device}.")
    }
}

fn refusals(figures: &Figures, refused: Option<&Refused>, lower_bounds: bool) -> String {
    match (refused, figures.refused) {
        (None, _) if lower_bounds => "No request was refused in what was recorded.".into(),
        (None, _) => "No request was refused.".into(),
        (Some(first), 1) => {
            format!("One request was refused, of {}: {}.", first.asked(), first.why())
        }
        (Some(first), many) => {
            let size = first.asked();
            format!("{many} requests were refused, the first of {size}: {}.", first.why())
        }
    }
}

fn help_for_refused(refused: &Refused, inspection: &Inspection) -> (Help, String) {
    match refused.verdict {
        Verdict::Fragmented | Verdict::SplitBetweenCacheAndDevice | Verdict::HeldElsewhere => {
            if refused.expandable_helps() {
                let text = "expandable_segments:True lets free memory be joined and change hands; granule whatif tries it.";
                return (Help::ExpandableSegments, text.into());
            }
            match refused.in_the_way.first() {
                Some(blocker) => {
                    let whose = blocker.block.caller.as_ref().map(from).unwrap_or_default();
                    let size = size_text(blocker.block.size);
                    (
                        Help::OneBlockLess,
                        format!("Without one block of {size}{whose} there would have been room for it."),
                    )
                }
                None => (Help::OtherSettings, "granule whatif tries other settings.".into()),
            }
        }
        Verdict::TooLittle => leak(inspection).unwrap_or_else(|| {
            let most = refused.most_live.as_ref().map_or_else(String::new, |group| {
                format!(
                    "; most that is live was asked for by {} ({})",
                    group.key.place.short(),
                    size_text(group.bytes)
                )
            });
            let missing = size_text(refused.missing);
            if refused.missing > inspection.run.peak_live {
                let text = format!(
                    "{missing} were missing, more than was ever live: a smaller request, a larger device, or less that other \
                     processes hold would have served it."
                );
                return (Help::NeedLess, text);
            }
            (
                Help::NeedLess,
                format!("{missing} less to keep, or a larger device, would have served it{most}."),
            )
        }),
        Verdict::Limited => {
            let limit = refused.limit.unwrap_or_default();
            let next = match limit.set_by {
                _ if limit.lifted => "More was held later: the limit was raised.",
                Some(_) => "Raise the limit, or keep less: granule whatif says what fits under it.",
                None => "Raise the limit, or keep less: granule whatif --capacity SIZE says what fits under it.",
            };
            (Help::RaiseLimit, next.into())
        }
        Verdict::OtherPool => {
            (Help::RaiseLimit, "Look at the limits of pools, and at what they have cached.".into())
        }
        Verdict::Unknown => {
            (Help::OtherSettings, "granule whatif says which settings fit on which device.".into())
        }
    }
}

fn help_for_served(inspection: &Inspection) -> (Help, String) {
    if let Some(found) = leak(inspection) {
        return found;
    }
    let figures = &inspection.run;
    if figures.peak_reserved == 0 {
        return (Help::Nothing, String::new());
    }
    let unused = figures.peak_reserved.saturating_sub(figures.peak_live);
    if unused >= figures.peak_reserved / MUCH {
        let more = size_text(unused);
        let text = format!(
            "{more} more were reserved than were ever live: granule whatif says which settings need less."
        );
        return (Help::OtherSettings, text);
    }
    (Help::Nothing, "Nearly all that was reserved was live at the peak: settings would save little.".into())
}

/// What becomes more with every iteration, if anything does.
fn leak(inspection: &Inspection) -> Option<(Help, String)> {
    let growth = &inspection.growth;
    let by = u64::try_from(growth.per_step?).ok().filter(|by| *by > 0)?;
    let worst = growth.suspects.first().filter(|_| growth.marks != Marks::Slices)?;
    let text = format!(
        "What is live grows by {} with every iteration, most of it {}: a leak, or kept on purpose.",
        size_text(by),
        whose(worst)
    );
    Some((Help::StopGrowth, text))
}

fn whose(suspect: &Suspect) -> String {
    match (&suspect.caller, suspect.size) {
        (Some(caller), _) => format!("asked for by {}", caller.place.short()),
        (None, Some(size)) => format!("in requests of {}", size_text(size)),
        (None, None) => "without a stack".into(),
    }
}

fn from(caller: &Caller) -> String {
    if caller.place == Place::default() { String::new() } else { format!(" from {}", caller.place.short()) }
}
