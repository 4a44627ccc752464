//! `horolog campaign plans`: lists the built-in plans, or prints the text of one.

use clap::Args;
use horolog_campaign::builtin_plans::{self, BuiltinPlan};
use horolog_campaign::plan::Plan;

use crate::failure::CommandFailure;
use crate::output;

/// List the built-in plans, or print one as a file to modify.
#[derive(Args, Debug)]
pub(super) struct CampaignPlansArgs {
    /// Plan to print.
    name: Option<String>,
}

/// Returns the built-in plan of this name; `None` if there is none.
pub(super) fn find_plan(name: &str) -> Option<&'static BuiltinPlan> {
    builtin_plans::find(name)
}

pub(super) fn plan_names() -> String {
    builtin_plans::PLANS.iter().map(|plan| plan.name).collect::<Vec<_>>().join(", ")
}

pub(super) fn run(args: &CampaignPlansArgs) -> Result<(), CommandFailure> {
    let Some(name) = &args.name else {
        let lines: Result<Vec<_>, _> = builtin_plans::PLANS.iter().map(plan_line).collect();
        return output::print_line(&lines?.join("\n"));
    };
    let plan = find_plan(name).ok_or_else(|| {
        CommandFailure::usage(format!("no plan is called '{name}'; there are {}", plan_names()))
    })?;
    output::print_line(plan.text.trim_end())
}

fn plan_line(builtin: &BuiltinPlan) -> Result<String, CommandFailure> {
    let plan = Plan::parse(builtin.text, &[]).map_err(CommandFailure::usage)?;
    let parameters = plan.parameters.iter().map(|(name, value)| format!("{name}={value}"));
    let parameters: Vec<_> = parameters.collect();
    Ok(format!("{}: {}\n    {}", builtin.name, plan.description, parameters.join(" ")))
}
