//! Names of driver functions in doc comments.

/// The driver functions in back quotes whose names begin with `prefix` ("cu", "hip") and a capital, in order.
pub(super) fn driver_names(docs: &str, prefix: &str) -> Vec<String> {
    let quoted = docs.split('`').skip(1).step_by(2);
    let names = quoted.filter(|name| {
        name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    });
    names.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::driver_names;

    #[test]
    fn driver_names_are_those_in_back_quotes_with_the_drivers_prefix() {
        let docs =
            "Frees. CUDA `cuMemFree` and `cuMemFreeAsync`, HIP `hipFree`, or the same with `hip`; `current`.";
        assert_eq!(driver_names(docs, "cu"), ["cuMemFree", "cuMemFreeAsync"]);
        assert_eq!(driver_names(docs, "hip"), ["hipFree"]);
    }
}
