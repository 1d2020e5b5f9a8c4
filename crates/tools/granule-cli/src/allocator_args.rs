//! How the allocator is set up: options that several commands share.

use crate::console;
use crate::failure::Failure;
use crate::workload::{Newest, Origin, parse_recorded};
use clap::Args;
use granule::config::{
    AllocatorBackend, Flavour, PolicyName, PytorchRelease, Settings, Warning, environment, pytorch,
};

/// The allocator.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct AllocatorArgs {
    /// Settings as in PYTORCH_CUDA_ALLOC_CONF [default: the environment's, else a snapshot's own]; GRANULE_CONF counts on top
    #[arg(long, value_name = "STR")]
    conf: Option<String>,

    /// pytorch or granule [default: the environment's, else pytorch]
    #[arg(long, value_name = "NAME", value_parser = parse_policy)]
    policy: Option<PolicyName>,

    #[command(flatten)]
    release: ReleaseArgs,
}

/// The release whose allocator the pytorch policy imitates.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ReleaseArgs {
    /// The release of PyTorch that the pytorch policy decides as: 2.11, 2.13, 2.14 or 2.15 [default: the environment's, a snapshot's, else 2.15]
    #[arg(long, value_name = "RELEASE", value_parser = str::parse::<PytorchRelease>)]
    pytorch: Option<PytorchRelease>,
}

impl ReleaseArgs {
    /// The settings, with the release that the command line names, or else they themselves, or else a snapshot shows, which is said
    /// on standard error.
    pub(crate) fn on(&self, settings: Settings, recorded: Option<&Origin>) -> Settings {
        let named = self.pytorch.or(settings.pytorch_release);
        let shown = recorded.and_then(|origin| origin.release);
        let shown = shown.filter(|_| named.is_none() && settings.policy_name() == PolicyName::Pytorch);
        if let Some(newest) = shown {
            console::note(format_args!(
                "the snapshot is of an older PyTorch ({newest}): the replay decides as {}; --pytorch names another",
                newest.decides()
            ));
        }
        Newest::settle(shown, Settings { pytorch_release: named, ..settings })
    }
}

impl AllocatorArgs {
    /// Whether the command line chose anything.
    pub(crate) fn is_given(&self) -> bool {
        self.conf.is_some() || self.policy.is_some() || self.release.pytorch.is_some()
    }

    /// The settings that the options, the environment and the recording give, in this order; says on standard
    /// error where they come from and what is dubious. `recorded` is what a snapshot says of its run.
    pub(crate) fn settings(&self, recorded: Option<&Origin>) -> Result<Settings, Failure> {
        for name in environment::BYPASS_VARIABLES {
            if std::env::var(name).as_deref() == Ok("1") {
                console::warning(format_args!("{name}=1 is ignored: a replay is of the caching allocator"));
            }
        }
        let used = variables_used();
        let conf = recorded.and_then(|origin| origin.conf.as_deref());
        let (mut settings, warnings) = match (&self.conf, conf) {
            (Some(text), _) => from_text(text)?,
            (None, Some(text)) if used.is_empty() => from_recording(text, "; --conf overrides them"),
            _ => from_environment(&used, beside_conf(&used))?,
        };
        if let Some(text) =
            conf.filter(|text| *text != settings.text && !(used.is_empty() && self.conf.is_none()))
        {
            console::note(format_args!("the snapshot was recorded with other settings: '{text}'"));
        }
        settings = native(settings);
        for warning in warnings {
            console::warning(warning);
        }
        if let Some(policy) = self.policy {
            settings.policy = Some(policy);
        }
        let settings = self.release.on(settings, recorded);
        tracing::debug!(?settings, "settings");
        Ok(settings)
    }
}

/// What the program runs with, by the environment or else the recording; says on standard error where it comes from.
pub(crate) fn current(recorded: Option<&str>) -> Result<Settings, Failure> {
    let used = variables_used();
    let (settings, warnings) = match recorded {
        Some(text) if used.is_empty() => from_recording(text, ""),
        _ => from_environment(&used, "")?,
    };
    warnings.into_iter().for_each(console::warning);
    Ok(native(settings))
}

/// The same for the caching allocator. The driver's own pools serve requests by rules that are not public: no replay can stand
/// for them, which is said.
pub(crate) fn native(settings: Settings) -> Settings {
    let caching = Settings { caching: true, ..settings };
    if caching.backend == AllocatorBackend::Native {
        return caching;
    }
    console::note(
        "backend:cudaMallocAsync is not modelled: what follows is of backend:native; for the other, run the program and look at \
         torch.cuda.memory_reserved()",
    );
    let others = caching.text.split(',').filter(|part| !part.trim_start().starts_with("backend:"));
    let text = others.collect::<Vec<_>>().join(",");
    Settings { backend: AllocatorBackend::Native, text, ..caching }
}

/// Settings in PyTorch's words alone; says what is dubious about them.
pub(crate) fn from_option(text: &str) -> Result<Settings, Failure> {
    let parsed = pytorch::parse(text, &Settings::default(), Flavour::Cuda)
        .map_err(|error| Failure::Conf { place: "--conf: ", error })?;
    for warning in parsed.warnings {
        console::warning(format_args!("--conf {text}: {warning}"));
    }
    Ok(native(parsed.settings))
}

fn from_text(text: &str) -> Result<(Settings, Vec<Warning>), Failure> {
    let parsed = pytorch::parse(text, &Settings::default(), Flavour::Cuda)
        .map_err(|error| Failure::Conf { place: "--conf: ", error })?;
    if std::env::var(environment::GRANULE_VARIABLE).is_err() {
        return Ok((parsed.settings, parsed.warnings));
    }
    // It takes the place of PyTorch's variables, and Granule's own is read on top of it as of them.
    let lookup = |name: &str| match name {
        name if name == environment::PYTORCH_VARIABLES[0] => Some(text.to_owned()),
        environment::GRANULE_VARIABLE => std::env::var(name).ok(),
        _ => None,
    };
    let parsed =
        environment::read(lookup, Flavour::Cuda).map_err(|error| Failure::Conf { place: "", error })?;
    console::note(format_args!(
        "settings '{}': --conf, and {} on top of it",
        parsed.settings.text,
        environment::GRANULE_VARIABLE
    ));
    Ok((parsed.settings, parsed.warnings))
}

/// The variables that count: the first of PyTorch's, and Granule's, which is read on top.
fn variables_used() -> Vec<&'static str> {
    let is_set = |name: &&'static str| std::env::var(name).is_ok();
    let pytorch = environment::PYTORCH_VARIABLES.into_iter().find(is_set);
    pytorch.into_iter().chain([environment::GRANULE_VARIABLE].into_iter().filter(is_set)).collect()
}

/// What `--conf` would do beside these variables.
fn beside_conf(used: &[&str]) -> &'static str {
    match used {
        [] => "",
        [environment::GRANULE_VARIABLE] => "; GRANULE_CONF is read on top of --conf, too",
        [_] => "; --conf overrides them",
        _ => "; --conf overrides PyTorch's, and GRANULE_CONF is read on top of it",
    }
}

/// `more` is said behind where they come from.
fn from_environment(used: &[&str], more: &str) -> Result<(Settings, Vec<Warning>), Failure> {
    // The error names the variable.
    let parsed = environment::from_env(Flavour::Cuda).map_err(|error| Failure::Conf { place: "", error })?;
    if !used.is_empty() {
        console::note(format_args!(
            "settings '{}' come from the environment ({}){more}",
            parsed.settings.text,
            used.join(", ")
        ));
    }
    Ok((parsed.settings, parsed.warnings))
}

/// What a snapshot was recorded with; text that is not understood is no reason not to replay it.
fn from_recording(text: &str, more: &str) -> (Settings, Vec<Warning>) {
    match parse_recorded(text) {
        Ok(parsed) => {
            console::note(format_args!("settings '{text}' are those the snapshot was recorded with{more}"));
            (parsed.settings, parsed.warnings)
        }
        Err(error) => {
            console::warning(format_args!(
                "the settings '{text}' that the snapshot was recorded with are not used: {error}"
            ));
            (Settings::default(), Vec::new())
        }
    }
}

pub(crate) fn parse_policy(name: &str) -> Result<PolicyName, String> {
    PolicyName::ALL.iter().copied().find(|policy| policy.name() == name).ok_or_else(|| {
        let there: Vec<_> = PolicyName::ALL.iter().map(|policy| policy.name()).collect();
        format!("there is no such policy in this build; available: {}", there.join(", "))
    })
}
