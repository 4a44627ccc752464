//! Worked example of the documentation: its task file is read from there, and its values are those
//! computed here.

use horolog_record::{
    CyclePredictBound, CyclePredictCost, CyclePredictCostKind as Kind,
    CyclePredictPercentile as Worst, CyclePredictTermKind as Term,
};

use super::cost::tests::{cost, every, message};
use super::{HostCosts, PredictedHostConfig, predict};
use crate::task::TaskSet;

const PAGE: &str = include_str!("../../../../docs/cycle-predict.md");
const US: u64 = 1_000;

/// Costs of the page's table.
fn costs() -> Vec<CyclePredictCost> {
    let interrupt =
        |part, us: u64, ms: u64| every(Kind::Interrupt, None, Some(part), us * US, ms * 1_000 * US);
    vec![
        cost(Kind::Switch, None, 2 * US),
        cost(Kind::Release, None, 150 * US),
        every(Kind::Scheduler, None, None, 4 * US, 4_000 * US),
        interrupt(Worst::P99, 10, 20),
        interrupt(Worst::Max, 300, 1_000),
        message(1_448, 120 * US, 60 * US),
    ]
}

fn us(ns: u64) -> String {
    let (whole, part) = (ns / US, ns % US);
    assert_eq!(part, 0, "the example is in whole microseconds");
    whole.to_string()
}

fn row(name: &str, bound: &CyclePredictBound) -> String {
    let terms = Term::ALL.map(|term| us(bound.term_ns(term)));
    format!("| {name} | {} | {} |", terms.join(" | "), us(bound.response_ns))
}

#[test]
fn the_figures_of_the_page_are_those_that_come_out() {
    let (_, rest) = PAGE.split_once("```toml\n").unwrap();
    let (text, _) = rest.split_once("```").unwrap();
    let set = TaskSet::parse(text).unwrap();
    let machine = PredictedHostConfig { nodes: 2, cores: 2, real_time_share: None };
    let all = predict(&set, &HostCosts::new(costs()), machine).unwrap().tasks;
    let mut rows = vec![format!("| bound | {} | in all |", Term::ALL.map(Term::name).join(" | "))];
    for task in &all {
        let (safe, printed) = (task.safe.as_ref().unwrap(), task.as_published.as_ref().unwrap());
        rows.push(row(&format!("{}, safe", task.name), safe));
        rows.push(row(&format!("{}, published", task.name), printed));
    }
    for row in &rows {
        assert!(PAGE.contains(row.as_str()), "not on the page:\n{}", rows.join("\n"));
    }
}
