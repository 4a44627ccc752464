//! Metrics for Prometheus with the names of their labels. Those of a load and of a relay are taken
//! from a rendered text; a server names its own. A server exports every other number of its status
//! under the path of the field, with labels from its sibling strings; these are not listed.

use std::collections::{BTreeMap, BTreeSet};

use horolog_record::{LiveRun, LossLocation, Percentiles, Snapshot};
use horolog_relay::{ChildListing, GroupListing, LimitsListing, RelayListing, TableSpec};

pub(super) fn list() -> Vec<String> {
    let texts = [horolog_report::load_metrics(&run()), horolog_relay::metrics::render(&relay())];
    let mut names: BTreeSet<String> = texts.iter().flat_map(|text| samples(text)).collect();
    names.extend(horolog_server::metric_names());
    names.into_iter().collect()
}

/// Names of the samples of a text, each with the names of its labels.
fn samples(text: &str) -> Vec<String> {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples
        .filter_map(|line| {
            let (name, _) = line.rsplit_once(' ')?;
            let Some((name, labels)) = name.split_once('{') else { return Some(name.to_owned()) };
            let labels = labels.split(',').filter_map(|label| Some(label.split_once('=')?.0));
            Some(format!("{name}{{{}}}", labels.collect::<Vec<_>>().join(",")))
        })
        .collect()
}

/// A run with every optional value.
fn run() -> LiveRun {
    let percentiles = Percentiles { p50: 1, p90: 1, p99: 1, p99_9: 1, max: 1 };
    let mut run = LiveRun::new("load", String::new(), "trial");
    run.lost_at = BTreeMap::from([(LossLocation::Link, 1)]);
    run.snapshots.push(Snapshot {
        latency_ns: Some(percentiles),
        lateness_ns: Some(percentiles),
        ..Snapshot::default()
    });
    run
}

/// A relay with one child.
fn relay() -> RelayListing {
    let child = ChildListing {
        address: ([192, 0, 2, 1], 1).into(),
        packets: 0,
        bytes: 0,
        dropped: BTreeMap::new(),
        unreachable: false,
    };
    let group = GroupListing {
        name: "group".to_owned(),
        engine: String::new(),
        xdp_unavailable: None,
        packets: 0,
        bytes: 0,
        refused: BTreeMap::new(),
        socket_dropped: Some(0),
        interface_missing: false,
        children: vec![child],
    };
    RelayListing {
        schema: horolog_relay::SCHEMA.to_owned(),
        engine: String::new(),
        host_engine: String::new(),
        limits: LimitsListing::default(),
        interfaces: Vec::new(),
        send_interface: None,
        table: TableSpec { destinations: Vec::new(), copy_rate: 0, groups: Vec::new() },
        groups: vec![group],
        receive_errors: 0,
        changes_refused: 0,
    }
}

#[test]
fn samples_have_the_names_of_their_labels() {
    let text = "# TYPE a counter\na_total{b=\"x y\",c=\"z\"} 1\nd 0.5\n# EOF\n";
    assert_eq!(samples(text), ["a_total{b,c}", "d"]);
}
