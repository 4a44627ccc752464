//! List of the Prometheus metrics with the names of their labels. Those of a load and of a relay
//! are read from a rendered example; the server crate lists its own. The metrics that a server
//! derives from every number in its status, named after the path of the field, are not listed.

use std::collections::{BTreeMap, BTreeSet};

use horolog_record::{LiveRun, LossLocation, Percentiles, RequestValues, Snapshot};
use horolog_relay::{ChildListing, GroupListing, LimitsListing, RelayListing, RoutingTableSpec};

pub(super) fn metric_names() -> Vec<String> {
    let texts = [
        horolog_report::load_metrics(&example_run()),
        horolog_relay::metrics::render(&example_relay()),
    ];
    let mut names: BTreeSet<String> = texts.iter().flat_map(|text| sample_names(text)).collect();
    names.extend(horolog_server::metric_names());
    names.into_iter().collect()
}

/// Returns the metric of each sample of an `OpenMetrics` text, with the names of its labels:
/// `name{label,label}`.
fn sample_names(text: &str) -> Vec<String> {
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

/// Returns live values in which every optional value is present.
fn example_run() -> LiveRun {
    let percentiles = Percentiles { p50: 1, p90: 1, p99: 1, p99_9: 1, max: 1 };
    let mut run = LiveRun::new("load", String::new(), "trial");
    run.lost_at = BTreeMap::from([(LossLocation::Link, 1)]);
    let values = RequestValues {
        latency_ns: Some(percentiles),
        lateness_ns: Some(percentiles),
        ..RequestValues::default()
    };
    run.snapshots.push(Snapshot { values, ..Snapshot::default() });
    run
}

/// Returns the listing of a relay with one group and one child.
fn example_relay() -> RelayListing {
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
        table: RoutingTableSpec { destinations: Vec::new(), copy_rate: 0, groups: Vec::new() },
        groups: vec![group],
        receive_errors: 0,
        changes_refused: 0,
    }
}

#[test]
fn samples_have_the_names_of_their_labels() {
    let text = "# TYPE a counter\na_total{b=\"x y\",c=\"z\"} 1\nd 0.5\n# EOF\n";
    assert_eq!(sample_names(text), ["a_total{b,c}", "d"]);
}
