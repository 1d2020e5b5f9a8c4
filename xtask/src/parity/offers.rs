//! What PyTorch offers for memory, function by function, as `tests/parity_torch.toml` lists it, with the tests of each.

use super::finder::Test;
use crate::table::Table as Markdown;
use anyhow::Result;
use serde::Deserialize;

/// Every table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Offers {
    #[serde(rename = "table")]
    tables: Vec<Table>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    name: String,
    rows: Vec<Row>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    /// What a pluggable allocator can do of it.
    pluggable: String,
    /// What Granule does of it, where that is not all.
    granule: Option<String>,
    /// Names of tests.
    tests: Vec<String>,
}

impl Offers {
    /// Reads the file's text.
    pub(super) fn parse(text: &str) -> Result<Self> {
        Ok(toml::from_str(text)?)
    }

    /// Rows without a test that runs, a line each.
    pub(super) fn problems(&self, tests: &[Test]) -> Vec<String> {
        let mut problems = Vec::new();
        for (table, row) in self.rows() {
            if row.tests.is_empty() {
                problems.push(format!("{table}: {} has no test", row.name));
            }
            for name in &row.tests {
                if !tests.iter().any(|test| test.name == *name && test.counts()) {
                    problems.push(format!(
                        "{table}: {name}, a test of {}, does not exist or does not run",
                        row.name
                    ));
                }
            }
        }
        problems
    }

    /// The tables, for the document: a row for all functions of which the same is said.
    pub(super) fn write(&self) -> String {
        let mut text = String::from(
            "\n## What a pluggable allocator can do\n\n\
             PyTorch's own allocator has all of these functions. `tests/parity_torch.toml` names the tests of each.\n",
        );
        for table in &self.tables {
            let mut said: Vec<([&str; 2], Vec<String>)> = Vec::new();
            for row in &table.rows {
                let says = [row.pluggable.as_str(), row.granule.as_deref().unwrap_or("yes")];
                let name = format!("`{}`", row.name);
                match said.iter_mut().find(|(other, _)| *other == says) {
                    Some((_, names)) => names.push(name),
                    None => said.push((says, vec![name])),
                }
            }
            let mut rows = Markdown::new(["`CUDAPluggableAllocator`", "Granule", "functions"]);
            for ([pluggable, granule], names) in said {
                rows.row([cell(pluggable), cell(granule), names.join(", ")]);
            }
            text += &format!("\n### {}\n\n{}", table.name, rows.text());
        }
        text
    }

    fn rows(&self) -> impl Iterator<Item = (&str, &Row)> {
        self.tables.iter().flat_map(|table| table.rows.iter().map(|row| (table.name.as_str(), row)))
    }
}

/// Text inside a table.
fn cell(text: &str) -> String {
    text.trim().replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::Offers;
    use crate::parity::finder::Test;

    #[test]
    fn each_function_needs_tests_that_exist() {
        let offers = Offers::parse(
            r#"
            [[table]]
            name = "Functions"
            rows = [
                { name = "one", pluggable = "refused", tests = ["test_one"] },
                { name = "two", pluggable = "yes", granule = "yes, faster", tests = ["test_gone", "test_one"] },
                { name = "three", pluggable = "yes", tests = [] },
            ]
            "#,
        )
        .unwrap();
        let test = Test::of("tests/torch/test_a.py", "test_one", &[]);
        let found = offers.problems(std::slice::from_ref(&test));
        assert_eq!(
            found,
            [
                "Functions: test_gone, a test of two, does not exist or does not run",
                "Functions: three has no test"
            ]
        );
        let ignored = Test { ignored: true, ..test.clone() };
        assert_eq!(offers.problems(&[ignored]).len(), 4);
        let text = offers.write();
        for row in ["| refused | yes | `one` |", "| yes | yes, faster | `two` |", "| yes | yes | `three` |"] {
            assert!(text.contains(row), "{text}");
        }
    }
}
