//! How the allocator is set up: options that several commands share.

use crate::backends::{self, ReplayBackend};
use crate::console;
use crate::failure::Failure;
use clap::Args;
use granule::config::{Flavour, PolicyName, Settings, Warning, environment, pytorch};

/// The allocator, and what it allocates from.
#[derive(Args, Clone, Debug)]
pub(crate) struct AllocatorArgs {
    /// Allocator settings, as in PYTORCH_CUDA_ALLOC_CONF [default: those of the environment]
    #[arg(long, value_name = "STR")]
    conf: Option<String>,

    /// The allocator's policy [default: that of the environment, else pytorch]
    #[arg(long, value_name = "NAME", value_parser = parse_policy)]
    policy: Option<PolicyName>,

    /// What the device is; openreg is the simulated accelerator
    #[arg(long, value_name = "NAME", default_value = "openreg", value_parser = backends::parse)]
    pub(crate) backend: ReplayBackend,
}

impl Default for AllocatorArgs {
    fn default() -> Self {
        Self { conf: None, policy: None, backend: ReplayBackend::OpenReg }
    }
}

impl AllocatorArgs {
    /// The settings that the options and the environment give; says on standard error where they come from
    /// and what is dubious.
    pub(crate) fn settings(&self) -> Result<Settings, Failure> {
        let (mut settings, warnings) = match &self.conf {
            Some(text) => from_text(text)?,
            None => from_environment()?,
        };
        for warning in warnings {
            console::warning(warning);
        }
        if let Some(policy) = self.policy {
            settings.policy = policy;
        }
        tracing::debug!(?settings, "settings");
        Ok(settings)
    }
}

fn from_text(text: &str) -> Result<(Settings, Vec<Warning>), Failure> {
    let parsed = pytorch::parse(text, &Settings::default(), Flavour::Cuda)
        .map_err(|error| Failure::Conf { place: "--conf: ", error })?;
    Ok((parsed.settings, parsed.warnings))
}

fn from_environment() -> Result<(Settings, Vec<Warning>), Failure> {
    // The error names the variable.
    let parsed = environment::from_env(Flavour::Cuda).map_err(|error| Failure::Conf { place: "", error })?;
    let variables = environment::PYTORCH_VARIABLES.into_iter().chain([environment::GRANULE_VARIABLE]);
    let set: Vec<_> = variables.filter(|name| std::env::var_os(name).is_some()).collect();
    if !set.is_empty() {
        console::note(format_args!(
            "settings '{}' come from the environment ({}); --conf overrides them",
            parsed.settings.text,
            set.join(", ")
        ));
    }
    Ok((parsed.settings, parsed.warnings))
}

fn parse_policy(name: &str) -> Result<PolicyName, String> {
    PolicyName::ALL.iter().copied().find(|policy| policy.name() == name).ok_or_else(|| {
        let there: Vec<_> = PolicyName::ALL.iter().map(|policy| policy.name()).collect();
        format!("there is no such policy in this build; available: {}", there.join(", "))
    })
}
