//! `horolog campaign plans`: the plans that come with the program, by name or as files.

use clap::Args;
use horolog_campaign::plan::Plan;
use horolog_campaign::shipped::{self, Shipped};

use crate::failure::Failure;
use crate::output;

/// List the plans that come with the program, or print one, as a file to change.
#[derive(Args, Debug)]
pub(super) struct PlansArgs {
    /// The plan to print.
    name: Option<String>,
}

/// The plan of this name that comes with the program.
pub(super) fn find(name: &str) -> Option<&'static Shipped> {
    shipped::find(name)
}

pub(super) fn names() -> String {
    shipped::PLANS.iter().map(|plan| plan.name).collect::<Vec<_>>().join(", ")
}

pub(super) fn run(args: &PlansArgs) -> Result<(), Failure> {
    let Some(name) = &args.name else {
        let lines: Result<Vec<_>, _> = shipped::PLANS.iter().map(line).collect();
        return output::line(&lines?.join("\n"));
    };
    let plan = find(name).ok_or_else(|| {
        Failure::usage(format!("no plan is called '{name}'; there are {}", names()))
    })?;
    output::line(plan.text.trim_end())
}

fn line(shipped: &Shipped) -> Result<String, Failure> {
    let plan = Plan::parse(shipped.text, &[]).map_err(Failure::usage)?;
    let parameters = plan.parameters.iter().map(|(name, value)| format!("{name}={value}"));
    let parameters: Vec<_> = parameters.collect();
    Ok(format!("{}: {}\n    {}", shipped.name, plan.about, parameters.join(" ")))
}
