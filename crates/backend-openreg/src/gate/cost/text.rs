//! A cost model as text: `map=15us,create-physical=30us+1ms/GiB`.

use super::CostModel;
use crate::Call;
use std::fmt;
use std::str::FromStr;

/// Why a text is no cost model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadCost(String);

impl From<String> for BadCost {
    fn from(why: String) -> Self {
        Self(why)
    }
}

impl fmt::Display for BadCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadCost {}

impl FromStr for CostModel {
    type Err = BadCost;

    /// Changes to the defaults, separated by commas: a call of the contract (`set-access`, in any case, with `-` or `_`),
    /// `=`, and a time (`ns`, `us`, `ms`, `s`) for the call, for each GiB, or both (`30us+1ms/GiB`); what is not given is
    /// 0. `zero` makes everything free that stands before it.
    fn from_str(text: &str) -> Result<Self, BadCost> {
        let mut model = Self::default();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            if item == "zero" {
                model = Self::zero();
                continue;
            }
            let (name, cost) = item.split_once('=').ok_or_else(|| {
                BadCost(format!(
                    "'{item}' is no cost: write for example map=20us, or name a file that is there"
                ))
            })?;
            let call = call(name.trim())?;
            let (mut per_call, mut per_gib) = (0, 0);
            for part in cost.split('+').map(str::trim) {
                match part.strip_suffix("/GiB") {
                    Some(part) => per_gib = nanoseconds(part)?,
                    None => per_call = nanoseconds(part)?,
                }
            }
            model = model.per_call(call, per_call).per_gib(call, per_gib);
        }
        Ok(model)
    }
}

/// The call of this name, as the contract's methods and the variants of [`Call`] are named.
fn call(name: &str) -> Result<Call, BadCost> {
    let plain = |name: &str| name.replace(['-', '_'], "").to_ascii_lowercase();
    let wanted = plain(name);
    let found = Call::ALL.iter().find(|call| plain(&format!("{call:?}")) == wanted);
    found.copied().ok_or_else(|| {
        BadCost(format!("there is no call '{name}': write for example malloc, create-physical or set-access"))
    })
}

fn nanoseconds(text: &str) -> Result<u64, BadCost> {
    let refuse = || BadCost(format!("'{text}' is no time: write for example 20us, 1.5ms or 0ns"));
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().map_err(|_| refuse())?;
    let unit = match text[end..].trim() {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return Err(refuse()),
    };
    // The cast saturates: more than 500 years are long enough.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let ns = (number * unit).round() as u64;
    Ok(ns)
}

#[cfg(test)]
mod tests {
    use super::CostModel;
    use crate::Call;

    #[test]
    fn changes_what_it_names_and_nothing_else() {
        let model: CostModel = "map=15us, Create_Physical=1.5us+2ms/GiB,unmap=1ms/GiB".parse().unwrap();
        let expected = CostModel::default()
            .per_call(Call::Map, 15_000)
            .per_gib(Call::Map, 0)
            .per_call(Call::CreatePhysical, 1_500)
            .per_gib(Call::CreatePhysical, 2_000_000)
            .per_call(Call::Unmap, 0)
            .per_gib(Call::Unmap, 1_000_000);
        assert_eq!(model, expected);
        assert_eq!("".parse(), Ok(CostModel::default()));
        assert_eq!("map=1us,zero,free=7ns".parse(), Ok(CostModel::zero().per_call(Call::Free, 7)));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let refused = |text: &str| text.parse::<CostModel>().unwrap_err().to_string();
        assert!(refused("map").contains("'map' is no cost"));
        assert!(refused("move=1us").contains("no call 'move'"));
        assert!(refused("map=20").contains("'20' is no time"));
        assert!(refused("map=us").contains("'us' is no time"));
        assert!(refused("map=-1us").contains("'-1us' is no time"));
    }
}
