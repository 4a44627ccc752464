//! `horolog campaign plans`: the built-in plans, by name or as files.

use clap::Args;
use horolog_campaign::builtin_plans::{self, BuiltinPlan};
use horolog_campaign::plan::Plan;

use crate::failure::CommandFailure;
use crate::output;

/// List the built-in plans, or print one as a file to modify.
#[derive(Args, Debug)]
pub(super) struct PlansArgs {
    /// Plan to print.
    name: Option<String>,
}

/// The built-in plan of this name.
pub(super) fn find(name: &str) -> Option<&'static BuiltinPlan> {
    builtin_plans::find(name)
}

pub(super) fn names() -> String {
    builtin_plans::PLANS.iter().map(|plan| plan.name).collect::<Vec<_>>().join(", ")
}

pub(super) fn run(args: &PlansArgs) -> Result<(), CommandFailure> {
    let Some(name) = &args.name else {
        let lines: Result<Vec<_>, _> = builtin_plans::PLANS.iter().map(line).collect();
        return output::line(&lines?.join("\n"));
    };
    let plan = find(name).ok_or_else(|| {
        CommandFailure::usage(format!("no plan is called '{name}'; there are {}", names()))
    })?;
    output::line(plan.text.trim_end())
}

fn line(shipped: &BuiltinPlan) -> Result<String, CommandFailure> {
    let plan = Plan::parse(shipped.text, &[]).map_err(CommandFailure::usage)?;
    let parameters = plan.parameters.iter().map(|(name, value)| format!("{name}={value}"));
    let parameters: Vec<_> = parameters.collect();
    Ok(format!("{}: {}\n    {}", shipped.name, plan.description, parameters.join(" ")))
}
