//! The book's page on configuration.

use alloc_core::config::{Grammar, OptionInfo, options};

/// The book's lists are made of the options: `UPDATE_DOCS=1` before this test writes them.
#[test]
fn the_book_has_every_option_as_the_table_has_it() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    let page = std::fs::read_to_string(file).unwrap();
    let row = |option: &OptionInfo| {
        let alias = option.alias.map_or(String::new(), |alias| format!(" or `{alias}`"));
        let (name, default, help) = (option.name, option.default, option.help);
        format!("- `{name}`{alias} ({default}): {}. {help}\n", option.strict_range())
    };
    let mut due = page.clone();
    for (title, grammar) in
        [("## PyTorch's options\n", Grammar::Pytorch), ("## Granule's own options\n", Grammar::Granule)]
    {
        let below = due.find(title).unwrap();
        let start = below + due[below..].find("\n- `").unwrap() + 1;
        let end = start + due[start..].find("\n\n").unwrap() + 1;
        due.replace_range(
            start..end,
            &options().iter().filter(|o| o.grammar == grammar).map(row).collect::<String>(),
        );
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(file, &due).unwrap();
    } else {
        let missing =
            due.lines().filter(|line| !page.lines().any(|other| other == *line)).collect::<Vec<_>>();
        assert!(
            page == due,
            "UPDATE_DOCS=1 cargo test -p alloc-core --test config the_book writes the lists, which lack\n{}",
            missing.join("\n")
        );
    }
}
