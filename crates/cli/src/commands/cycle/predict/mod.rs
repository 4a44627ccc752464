//! `horolog cycle predict`: a task file and costs of the machine to bounds, as text, JSON and page.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

pub(super) mod given;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use horolog_cycle::predict::{self, Machine, Runs, Source, source};
use horolog_cycle::task::TaskSet;
use horolog_record::{
    CYCLE_PREDICT_SCHEMA, CyclePredictResult, CyclePredictTask, CyclePredictWorst, Host, LimitUnit,
    rfc3339_now,
};
use horolog_report::{html, table, to_json};

use crate::failure::{Failure, verdict};
use crate::files::FileArgs;
use crate::limit::{Limit, Limited};
use crate::{output, values};

/// What can be limited of each task.
#[derive(Clone, Copy, Debug)]
enum Figure {
    /// The safe bound.
    Response,
    /// Equation (3) as it is printed.
    Printed,
    /// The share of the deadline that the safe bound takes.
    Used,
    /// The share of a core that the task takes.
    Utilisation,
}

const FIGURES: [Limited<Figure>; 4] = [
    ("response", LimitUnit::Ns, Figure::Response),
    ("printed", LimitUnit::Ns, Figure::Printed),
    ("used", LimitUnit::Ratio, Figure::Used),
    ("utilisation", LimitUnit::Ratio, Figure::Utilisation),
];
const TIME_MIN: Duration = Duration::from_secs(5);
const TIME_MAX: Duration = Duration::from_hours(1);
const TIME: Duration = Duration::from_secs(15);

/// How long periodic tasks take at worst, and whether they keep their deadlines.
///
/// For each task of a file (TOML, [[task]]) the equations (1) to (3) of Hao, Xue and Qin 2010 as
/// they are printed, and beside them a safe bound by response-time analysis (Joseph and Pandya
/// 1986, Audsley et al. 1993): each period begun counts, and so do tasks of higher and equal
/// priority, blocking, late releases and switches. What the machine costs comes from results of
/// 'host all', 'host timer', 'host switch', 'host interrupt', 'host clock' and 'path udp', or is
/// measured now; the result names the source of each figure. Exit status 1 where a task is not in
/// time, or nothing can be said of it.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("costing").required(true).multiple(true)
          .args(["costs", "measure"]))]
pub(super) struct PredictArgs {
    /// Task file.
    file: PathBuf,
    /// A result (JSON) that costs are taken from; may be given more than once. Of several of one
    /// kind the worst counts.
    #[arg(long, value_name = "FILE")]
    costs: Vec<PathBuf>,
    /// Measure now what this machine costs: wake-ups, switches, interrupts, the tick. Messages are
    /// measured by 'path udp' alone.
    #[arg(long)]
    measure: bool,
    /// About how long that may take, 5s to 1h [default: 15s].
    #[arg(long, value_name = "TIME", value_parser = time, requires = "measure")]
    time: Option<Duration>,
    /// Which figure of a measurement is its worst: p50, p90, p99, p99.9, p99.99 or max. Of what
    /// takes the core from tasks, rarer gaps are left out then.
    #[arg(long, value_name = "FIGURE", value_parser = worst, default_value = "max")]
    worst: CyclePredictWorst,
    /// A result (JSON) of 'cycle run' of these tasks, to stand beside the bounds; may be given more
    /// than once. Of tasks that are programs or compute in units, and have no 'worst', it tells how
    /// long they run.
    #[arg(long, value_name = "FILE")]
    measured: Vec<PathBuf>,
    /// Nodes that run these tasks and send to one another; with 1 no message is waited for.
    #[arg(long, value_name = "N", default_value_t = 2,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    nodes: u32,
    /// End with status 1 if this holds of any task, such as 'used>80%' or 'response>5ms'; may be
    /// given more than once. Figures: response (the safe bound), printed, used (the bound as a
    /// share of the deadline), utilisation (of a core). What is not known breaks its limit.
    #[arg(long, value_name = "LIMIT", value_parser = |text: &str| Limit::parse(text, FIGURES))]
    fail_if: Vec<Limit<Figure>>,
    #[command(flatten)]
    files: FileArgs,
}

fn time(text: &str) -> Result<Duration, String> {
    match values::long_duration(text)? {
        time if (TIME_MIN..=TIME_MAX).contains(&time) => Ok(time),
        _ => Err("5s to 1h".into()),
    }
}

fn worst(text: &str) -> Result<CyclePredictWorst, String> {
    let names = || CyclePredictWorst::ALL.map(CyclePredictWorst::name).join(", ");
    let found = CyclePredictWorst::ALL.into_iter().find(|worst| worst.name() == text);
    found.ok_or_else(|| format!("write one of {}", names()))
}

pub(super) fn run(args: &PredictArgs) -> Result<(), Failure> {
    let mut runs = Runs::default();
    for path in &args.measured {
        runs.add(&path.display().to_string(), &given::run(path)?, args.worst);
    }
    let set = runs.known(&given::tasks(&args.file)?).map_err(Failure::usage)?;
    let mut sources = Vec::new();
    for path in &args.costs {
        sources.extend(given::costs(path)?);
    }
    // What is wrong with the tasks is said before anything is measured.
    let machine = Machine { nodes: args.nodes, cores: Host::read().cores, real_time_share: None };
    predicted(args, (&set, &runs), &sources, machine)?;
    let files = args.files.open()?;
    if args.measure {
        output::end_gently()?;
        sources.extend(given::measured(args.time.unwrap_or(TIME))?);
    }
    let real_time_share = source::real_time_share(&sources);
    let mut result =
        predicted(args, (&set, &runs), &sources, Machine { real_time_share, ..machine })?;
    let judge = |limit: &Limit<Figure>| limit.judge_named(of_tasks(&result, limit.figure));
    result.limits = args.fail_if.iter().map(judge).collect();
    files.write(&result, [to_json, html::cycle_predict], table::cycle_predict)?;
    verdict(&result.limits, &result.findings)
}

fn predicted(
    args: &PredictArgs,
    (set, runs): (&TaskSet, &Runs),
    sources: &[Source],
    machine: Machine,
) -> Result<CyclePredictResult, Failure> {
    let costs = source::costs(sources, args.worst);
    let mut prediction = predict::predict(set, &costs, machine)
        .map_err(|error| Failure::usage(format!("{}: {error}", args.file.display())))?;
    let host = Host::read();
    let mut findings = runs.beside(set, &mut prediction.tasks);
    findings.extend(prediction.findings);
    findings.extend(source::doubts(sources, &host, args.worst));
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    Ok(CyclePredictResult {
        schema: CYCLE_PREDICT_SCHEMA.to_owned(),
        started: rfc3339_now(),
        command: output::command_line(),
        host,
        nodes: machine.nodes,
        worst: args.worst,
        costs: costs.list().to_vec(),
        tasks: prediction.tasks,
        limits: Vec::new(),
        findings,
    })
}

/// The figure of each task.
fn of_tasks(
    result: &CyclePredictResult,
    figure: Figure,
) -> impl Iterator<Item = (String, Option<f64>)> {
    let of = move |task: &CyclePredictTask| match figure {
        Figure::Response => task.safe.as_ref().map(|bound| bound.response_ns as f64),
        Figure::Printed => task.printed.as_ref().map(|bound| bound.response_ns as f64),
        Figure::Used => task.used(),
        Figure::Utilisation => task.utilisation,
    };
    result.tasks.iter().map(move |task| (format!("task {}", task.name), of(task)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_named() {
        assert_eq!(worst("p99.9"), Ok(CyclePredictWorst::P99_9));
        assert_eq!(worst("max"), Ok(CyclePredictWorst::Max));
        assert!(worst("p42").is_err_and(|why| why.contains("p99.99, max")));
        assert!(time("4s").is_err() && time("2h").is_err() && time("30s").is_ok());
        assert!(Limit::parse("used>80%", FIGURES).is_ok());
        assert!(Limit::parse("margin>1ms", FIGURES).is_err());
    }
}
