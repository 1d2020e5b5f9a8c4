//! What a configuration says.

use alloc_core::config::{Flavour, PolicyName, Settings, pytorch};

/// What `policy=NAME,conf=STRING` says.
pub(crate) fn settings(config: &str) -> Result<Settings, String> {
    let (policy, rest) = match config.strip_prefix("policy=") {
        Some(rest) => rest.split_once(',').map_or((Some(rest), ""), |(policy, rest)| (Some(policy), rest)),
        None => (None, config),
    };
    let conf = rest.strip_prefix("conf=").unwrap_or(rest);
    let parsed =
        pytorch::parse(conf, &Settings::default(), Flavour::Cuda).map_err(|error| error.to_string())?;
    let mut settings = parsed.settings;
    if let Some(name) = policy {
        let found = PolicyName::ALL.iter().find(|policy| policy.name() == name);
        settings.policy = Some(*found.ok_or_else(|| format!("this build has no policy '{name}'"))?);
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::settings;
    use alloc_core::config::PolicyName;

    #[test]
    fn the_policy_comes_first_and_the_rest_is_pytorchs() {
        let both = settings("policy=granule,conf=expandable_segments:True,max_split_size_mb:64").unwrap();
        assert_eq!(
            (both.policy, both.expandable_segments, both.max_split_size),
            (Some(PolicyName::Granule), true, 64 << 20)
        );
        assert_eq!(settings("policy=pytorch").unwrap().policy, Some(PolicyName::Pytorch));
        assert_eq!(settings("").unwrap().policy, None);
        assert!(settings("conf=expandable_segments:True").unwrap().expandable_segments);
        assert!(settings("policy=best").unwrap_err().contains("no policy 'best'"));
    }
}
