//! A cost model from what was written down: a text, a file of such texts, or what `drvcost` measured on a card.

use backend_openreg::{BadCost, Call, CostModel};
use serde::Deserialize;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};

/// The largest file of costs; a card's figures take some 30 kB.
const MOST_BYTES: u64 = 4 << 20;
/// An hour, which no call takes.
const MOST_NS: f64 = 3.6e12;
/// Names that a note tells at most.
const MOST_NAMES: usize = 12;

/// The calls that a card's figures are taken for, as `drvcost` names them. Others keep what is assumed.
const MEASURED: [(&str, Call); 20] = [
    ("cuMemMap", Call::Map),
    ("cuMemUnmap", Call::Unmap),
    ("cuMemSetAccess", Call::SetAccess),
    ("cuMemCreate", Call::CreatePhysical),
    ("cuMemRelease", Call::ReleasePhysical),
    ("cuMemAddressReserve", Call::ReserveAddress),
    ("cuMemAddressFree", Call::ReleaseAddress),
    ("cuMemAlloc", Call::Malloc),
    ("cuMemFree", Call::Free),
    ("cuMemHostAlloc", Call::HostMalloc),
    ("cuMemFreeHost", Call::HostFree),
    ("cuMemHostRegister.touched", Call::RegisterHost),
    ("cuMemHostUnregister", Call::UnregisterHost),
    ("cuMemGetInfo", Call::MemoryInfo),
    ("cuEventRecord", Call::RecordEvent),
    ("cuEventQuery.done", Call::QueryEvent),
    ("cuEventSynchronize.done", Call::SynchronizeEvent),
    ("cuStreamWaitEvent", Call::WaitEvent),
    ("cuStreamSynchronize.idle", Call::SynchronizeStream),
    ("cuCtxSynchronize.idle", Call::SynchronizeDevice),
];

/// A cost model, and where it is from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// What calls cost.
    pub model: CostModel,
    /// Which costs a file has, and which are still assumed; nothing where no file was named.
    pub note: Option<String>,
}

/// The cost model that `from` says: a text of [`CostModel`]'s grammar, or the path of a file. A file has such texts line by line,
/// or the JSON lines of the kit's `driver.jsonl`.
///
/// # Errors
/// What `from` is instead, and what to write.
pub fn costs(from: &str) -> Result<Costs, BadCost> {
    let refuse = |why: String| BadCost::from(format!("{from}: {why}"));
    match fs::metadata(from) {
        // What waits for a writer, or is endless, is not even opened.
        Ok(found) if !found.is_file() => return Err(refuse("is a folder or a device, not a file".into())),
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return Err(refuse(format!("cannot be read: {error}")));
        }
        Err(_) if is_path(from) => return Err(BadCost::from(format!("there is no file '{from}'"))),
        Err(_) => return Ok(Costs { model: from.parse()?, note: None }),
    }
    let mut bytes = Vec::new();
    File::open(from)
        .and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| refuse(format!("cannot be read: {error}")))?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(refuse("over 4 MiB, which no file of costs is".into()));
    }
    let text = String::from_utf8(bytes).map_err(|_| refuse("is no text".into()))?;
    let (model, what) = of_file(&text).map_err(|error| refuse(error.to_string()))?;
    Ok(Costs { model, note: Some(format!("costs: {from}{what}")) })
}

/// Whether a text is meant as a path; `1ms/GiB` is none.
fn is_path(text: &str) -> bool {
    [".jsonl", ".txt"].iter().any(|end| text.ends_with(end)) || (text.contains('/') && !text.contains('='))
}

/// The model, and what its note says behind the name of the file.
fn of_file(text: &str) -> Result<(CostModel, String), BadCost> {
    // `drvcost` itself marks its lines, among others that a program may print.
    let lines = || {
        let lines = text.lines().map(|line| line.strip_prefix("KIT ").unwrap_or(line).trim()).zip(1..);
        lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#'))
    };
    let (first, _) = lines().next().ok_or_else(|| BadCost::from("there is nothing in it".to_owned()))?;
    if first.starts_with('{') {
        return measured(lines());
    }
    let model = lines().map(|(line, _)| line).collect::<Vec<_>>().join(",").parse()?;
    Ok((model, "; assumed: what it does not name".to_owned()))
}

/// A line of `driver.jsonl`; most of them say something else.
#[derive(Deserialize)]
struct Line {
    call: Option<String>,
    bytes: Option<u64>,
    median_ns: Option<f64>,
}

fn measured<'t>(lines: impl Iterator<Item = (&'t str, usize)>) -> Result<(CostModel, String), BadCost> {
    let mut points: [Vec<Point>; MEASURED.len()] = Default::default();
    let mut unknown: Vec<String> = Vec::new();
    for (text, number) in lines {
        let refuse = |why: String| BadCost::from(format!("line {number}: {why}"));
        let line: Line = serde_json::from_str(text).map_err(|error| {
            // It counts lines of this one, and says so at its end.
            let error = error.to_string();
            let why = error.split(" at line ").next().unwrap_or_default();
            refuse(format!("{why}; a line that was cut off can be deleted"))
        })?;
        let (Some(call), Some(bytes), Some(ns)) = (line.call, line.bytes, line.median_ns) else { continue };
        if !(0.0..=MOST_NS).contains(&ns) {
            return Err(refuse(format!("{call} took {ns:?} ns, which no call takes")));
        }
        if let Some(at) = MEASURED.iter().position(|(name, _)| *name == call) {
            #[allow(clippy::cast_precision_loss)] // sizes of memory are far below 2^53
            points[at].push(Point { gib: bytes as f64 / (1u64 << 30) as f64, ns: ns.max(1.0) });
        } else if unknown.len() <= MOST_NAMES {
            let name = call.chars().take(40).flat_map(char::escape_debug).collect();
            if !unknown.contains(&name) {
                unknown.push(name);
            }
        }
    }
    if points.iter().all(Vec::is_empty) {
        return Err(BadCost::from(
            "no line says what a driver call took (call, bytes, median_ns); the kit's step driver-cost writes \
             them (plan main)"
                .to_owned(),
        ));
    }
    let (mut model, mut names) = (CostModel::default(), Vec::new());
    for ((_, call), points) in MEASURED.iter().zip(&points).filter(|(_, points)| !points.is_empty()) {
        let (fixed, per_gib) = fit(points);
        // Casts saturate.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let (fixed, per_gib) = (fixed.round() as u64, per_gib.round() as u64);
        model = model.per_call(*call, fixed).per_gib(*call, per_gib);
        names.push(text_name(*call));
    }
    let mut note = format!(" ({}); assumed: the rest", names.join(", "));
    if !unknown.is_empty() {
        let more = if unknown.len() > MOST_NAMES { " and more" } else { "" };
        unknown.truncate(MOST_NAMES);
        note += &format!("; not known: {}{more}", unknown.join(", "));
    }
    Ok((model, note))
}

/// A call as texts of costs name it: `create-physical`.
fn text_name(call: Call) -> String {
    let mut name = String::new();
    for letter in format!("{call:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

/// What a call of a size took: the median of several.
struct Point {
    gib: f64,
    ns: f64,
}

/// Nanoseconds for a call and for each GiB, neither below 0, whose errors, as parts of what was measured, have the least sum of
/// squares. So 20 µs for 2 MiB count as much as 2 ms for 4 GiB.
fn fit(points: &[Point]) -> (f64, f64) {
    let sum = |of: fn(&Point) -> f64| points.iter().map(|point| of(point) / point.ns.powi(2)).sum::<f64>();
    let (w, x, y) = (sum(|_| 1.0), sum(|it| it.gib), sum(|it| it.ns));
    let (xx, xy) = (sum(|it| it.gib * it.gib), sum(|it| it.gib * it.ns));
    let spread = w * xx - x * x;
    // Of one size nothing is known about others.
    let per_gib = if spread > 1e-9 * w * xx { (w * xy - x * y) / spread } else { 0.0 };
    let fixed = (y - per_gib * x) / w;
    if per_gib < 0.0 {
        (y / w, 0.0)
    } else if fixed < 0.0 {
        (0.0, xy / xx)
    } else {
        (fixed, per_gib)
    }
}

#[cfg(test)]
mod tests {
    use super::{Costs, Point, costs, fit, of_file};
    use backend_openreg::{Call, CostModel};
    use std::fs;

    fn line(call: &str, bytes: u64, ns: f64) -> String {
        format!("{{\"step\":\"driver\",\"call\":\"{call}\",\"bytes\":{bytes},\"n\":9,\"median_ns\":{ns}}}\n")
    }

    #[test]
    fn what_was_measured_is_a_cost_for_a_call_and_for_each_gib() {
        let sizes = [2 << 20, 24 << 20, 1 << 30, 4 << 30];
        #[allow(clippy::cast_precision_loss)]
        let took = |bytes: u64| 3_000.0 + 80_000.0 * bytes as f64 / f64::from(1 << 30);
        let mut text: String = sizes.iter().map(|&bytes| line("cuMemMap", bytes, took(bytes))).collect();
        text += &line("cuEventRecord", 0, 700.0);
        text += &line("cuCtxPush+Pop", 0, 90.0);
        text +=
            "{\"step\":\"driver\",\"call\":\"many\",\"unit\":2097152}\n{\"step\":\"driver\",\"end\":true}\n";
        let expected = CostModel::default()
            .per_call(Call::Map, 3_000)
            .per_gib(Call::Map, 80_000)
            .per_call(Call::RecordEvent, 700);
        let note = " (map, record-event); assumed: the rest; not known: cuCtxPush+Pop".to_owned();
        assert_eq!(of_file(&text), Ok((expected, note)));
        let printed = text.replace("{\"step\"", "KIT {\"step\"");
        assert_eq!(of_file(&printed), of_file(&text), "as drvcost prints it");
    }

    #[test]
    #[allow(clippy::float_cmp)]
    fn nothing_costs_less_than_nothing_and_small_calls_count_as_much_as_large_ones() {
        let points =
            |found: &[(f64, f64)]| found.iter().map(|&(gib, ns)| Point { gib, ns }).collect::<Vec<_>>();
        assert_eq!(fit(&points(&[(0.0, 40.0)])), (40.0, 0.0));
        assert_eq!(fit(&points(&[(1.0, 40.0), (1.0, 40.0)])), (40.0, 0.0), "one size");
        let (fixed, per_gib) = fit(&points(&[(0.1, 90.0), (1.0, 60.0), (4.0, 50.0)]));
        assert!(per_gib == 0.0 && (50.0..90.0).contains(&fixed), "{fixed} {per_gib}");
        let (fixed, per_gib) = fit(&points(&[(0.5, 10.0), (1.0, 100.0), (2.0, 300.0)]));
        assert!(fixed == 0.0 && (20.0..150.0).contains(&per_gib), "{fixed} {per_gib}");
        // A large call that is off by half of its time moves a small one by less than a tenth.
        let (fixed, _) =
            fit(&points(&[(0.002, 20.0), (0.02, 21.0), (0.06, 23.0), (1.0, 70.0), (4.0, 330.0)]));
        assert!((18.0..22.0).contains(&fixed), "{fixed}");
    }

    #[test]
    fn a_file_of_texts_is_read_line_by_line() {
        let (model, _) = of_file("# of a card\nmap=1us\n\n  unmap=2us,free=3us\n").unwrap();
        assert_eq!(Ok(model), "map=1us,unmap=2us,free=3us".parse());
    }

    #[test]
    fn what_is_no_file_of_costs_is_refused_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |content: &[u8]| {
            let path = folder.path().join("driver.jsonl");
            fs::write(&path, content).unwrap();
            costs(path.to_str().unwrap()).unwrap_err().to_string()
        };
        let good = line("cuMemMap", 2 << 20, 9.0);
        for (content, expected) in [
            (
                format!("{good}{{\"step\":\"driver\",\"ca"),
                "line 2: EOF while parsing a string; a line that was cut off",
            ),
            (line("cuMemMap", 1, -5.0), "line 1: cuMemMap took -5.0 ns, which no call takes"),
            (line("cuMemMap", 1, 1.0).replace("ns\":1", "ns\":1e999"), "line 1: number out of range"),
            (line("cuMemMap", 1, 1e300), "line 1: cuMemMap took 1e300 ns, which no call takes"),
            (format!("{good}{}", line("cuMemMap", 1, 3.7e12)), "line 2: cuMemMap took 3700000000000.0 ns"),
            (good.replace("2097152", "-1"), "line 1: invalid value"),
            ("{\"step\":\"driver\",\"end\":true}\n".to_owned(), "no line says what a driver call took"),
            ("\n# nothing\n".to_owned(), "there is nothing in it"),
            ("all is well\n".to_owned(), "'all is well' is no cost"),
            ("x".repeat(5 << 20), "over 4 MiB"),
        ] {
            let said = refused(content.as_bytes());
            assert!(said.contains(expected) && said.contains("driver.jsonl: "), "{expected}: {said}");
        }
        assert!(refused(b"\xff\xfe").contains("is no text"));
        let said = |from: &str| costs(from).unwrap_err().to_string();
        assert!(said(folder.path().to_str().unwrap()).contains("not a file"));
        assert!(said("/dev/zero").contains("not a file"), "endless");
        for missing in ["no-such-file.jsonl", "costs.txt", "nowhere/driver", "lr=1/driver.jsonl"] {
            assert_eq!(said(missing), format!("there is no file '{missing}'"));
        }
        assert!(said("no-such-file").contains("name a file that is there"));
        let model = "map=3us+1ms/GiB".parse().unwrap();
        assert_eq!(costs("map=3us+1ms/GiB"), Ok(Costs { model, note: None }));
    }
}
