//! What there is.

use super::folder::Folder;
use crate::bench::table::Table;
use anyhow::Result;

pub(super) fn run(folder: &Folder) -> Result<()> {
    let mut table = Table::new(["program", "half", "kind", "trace", "what it is"]);
    for recipe in folder.recipes()? {
        let trace = match folder.trace(&recipe.name) {
            Some(path) => format!("{} kB", std::fs::metadata(path)?.len().div_ceil(1000)),
            None => "not here".to_owned(),
        };
        let fields = recipe.fields;
        table.row([recipe.name, fields.half.name().to_owned(), fields.kind, trace, fields.about]);
    }
    print!("{}", table.text());
    Ok(())
}
