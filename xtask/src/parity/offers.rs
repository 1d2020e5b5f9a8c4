//! What PyTorch offers for memory, function by function, as `tests/parity_torch.toml` lists it, with the tests of each.

use super::finder::Test;
use super::table::{cell, tests_text};
use anyhow::Result;
use serde::Deserialize;
use std::fmt::Write as _;

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

    /// The tables, for the document.
    pub(super) fn write(&self, tests: &[Test]) -> String {
        let mut text = String::new();
        for table in &self.tables {
            let _ = write!(
                text,
                "\n## {}\n\n| function | native | pluggable today | Granule | tests |\n| --- | --- | --- | --- | --- |\n",
                table.name
            );
            for row in &table.rows {
                let own: Vec<&Test> = tests.iter().filter(|test| row.tests.contains(&test.name)).collect();
                let granule = row.granule.as_deref().unwrap_or("yes");
                let _ = writeln!(
                    text,
                    "| `{}` | yes | {} | {} | {} |",
                    row.name,
                    cell(&row.pluggable),
                    cell(granule),
                    tests_text(&own)
                );
            }
        }
        text
    }

    fn rows(&self) -> impl Iterator<Item = (&str, &Row)> {
        self.tables.iter().flat_map(|table| table.rows.iter().map(|row| (table.name.as_str(), row)))
    }
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
        let test = Test {
            file: "tests/torch/test_a.py".into(),
            name: "test_one".into(),
            ids: Vec::new(),
            is_test: true,
            ignored: false,
            since: None,
        };
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
        let text = offers.write(&[test]);
        let link = "[test_a.py](../tests/torch/test_a.py): `test_one`";
        assert!(text.contains(&format!("| `one` | yes | refused | yes | {link} |")), "{text}");
        assert!(text.contains(&format!("| `two` | yes | yes | yes, faster | {link} |")), "{text}");
    }
}
