//! The result of a tree of relays against its golden file, and any that the types allow.

use horolog_record::{
    RELAY_TREE_SCHEMA, RelayTreeCalibration, RelayTreeEngine, RelayTreeEquation4, RelayTreeGain,
    RelayTreeMeasured, RelayTreeMethod, RelayTreeNode, RelayTreeNodeGain, RelayTreeProcessing,
    RelayTreeResult, RelayTreeShape,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;

use crate::choices::{TREE_ASSUMPTIONS, TREE_SHAPES};
use crate::golden::{new_names, read, with_unknown_fields, written};
use crate::strategies::{chosen, distribution, finding, host, limit, number};

const TREE: &str = include_str!("relay_tree.json");

fn result() -> impl Strategy<Value = RelayTreeResult> {
    let facts = (any::<String>(), vec(any::<String>(), 0..3), host(), option::of(method()));
    let tree = (vec(node(), 0..3), vec(engine(), 0..3), option::of(gain()), vec(shape(), 0..3));
    let judged = (vec(limit(), 0..3), vec(finding(), 0..3));
    (facts, tree, judged).prop_map(|(facts, tree, (limits, findings))| {
        let (started, command, host, method) = facts;
        let (nodes, engines, gain, shapes) = tree;
        RelayTreeResult {
            schema: RELAY_TREE_SCHEMA.to_owned(),
            started,
            command,
            host,
            nodes,
            engines,
            gain,
            shapes,
            method,
            limits,
            findings,
        }
    })
}

fn node() -> impl Strategy<Value = RelayTreeNode> {
    (any::<String>(), option::of(any::<usize>()), any::<[usize; 2]>(), number()).prop_map(
        |(name, parent, [child_index, depth], delay_ns)| RelayTreeNode {
            name,
            parent,
            child_index,
            depth,
            delay_ns,
        },
    )
}

fn engine() -> impl Strategy<Value = RelayTreeEngine> {
    let processing = (number(), number())
        .prop_map(|(first_ns, next_ns)| RelayTreeProcessing { first_ns, next_ns });
    let delays = (vec(number(), 0..3), number(), any::<usize>(), number());
    (any::<String>(), vec(processing, 0..3), delays, option::of(measured())).prop_map(
        |(name, processing, (delays_ns, tree_ns, slowest, mean_ns), measured)| RelayTreeEngine {
            name,
            processing,
            delays_ns,
            tree_ns,
            slowest,
            mean_ns,
            measured,
        },
    )
}

fn measured() -> impl Strategy<Value = RelayTreeMeasured> {
    let calibration = (number(), vec(number(), 0..3), any::<bool>(), number(), number()).prop_map(
        |(source_ns, copies_ns, reversed, first_ns, next_ns)| RelayTreeCalibration {
            source_ns,
            copies_ns,
            reversed,
            first_ns,
            next_ns,
        },
    );
    let nodes = (vec(option::of(distribution()), 0..3), option::of(distribution()));
    let sums = (option::of(number()), option::of(number()), any::<u64>());
    (calibration, nodes, sums).prop_map(
        |(calibration, (nodes, last_leaf_ns), (tree_ns, mean_ns, lost))| RelayTreeMeasured {
            calibration,
            nodes,
            last_leaf_ns,
            tree_ns,
            mean_ns,
            lost,
        },
    )
}

fn method() -> impl Strategy<Value = RelayTreeMethod> {
    (any::<[u64; 4]>(), any::<usize>(), any::<bool>()).prop_map(
        |([packets, rounds, warm_up, interval_ns], payload, awake)| RelayTreeMethod {
            packets,
            repetitions: rounds,
            warm_up,
            interval_ns,
            payload,
            idle_states_held: awake,
        },
    )
}

fn gain() -> impl Strategy<Value = RelayTreeGain> {
    let node = (number(), number(), number()).prop_map(|(processing_ns, tree_ns, mean_ns)| {
        RelayTreeNodeGain { processing_ns, tree_ns, mean_ns }
    });
    let sums = (number(), number(), number(), any::<bool>(), number());
    let measured = (option::of(number()), option::of(number()));
    (sums, equation_4(), vec(node, 0..3), measured).prop_map(
        |(
            (tree_ns, mean_ns, along_path_ns, same_path, printed_mean_ns),
            regular,
            nodes,
            measured,
        )| {
            RelayTreeGain {
                tree_ns,
                mean_ns,
                along_path_ns,
                same_path,
                regular,
                published_mean_ns: printed_mean_ns,
                nodes,
                measured_tree_ns: measured.0,
                measured_mean_ns: measured.1,
            }
        },
    )
}

fn equation_4() -> impl Strategy<Value = RelayTreeEquation4> {
    let sums = (option::of(number()), option::of(number()));
    (vec(chosen(TREE_ASSUMPTIONS), 0..3), any::<usize>(), number(), sums).prop_map(
        |(broken, degree, processing_ns, (all_nodes_ns, leaves_ns))| RelayTreeEquation4 {
            broken,
            degree,
            processing_ns,
            all_nodes_ns,
            leaves_ns,
        },
    )
}

fn shape() -> impl Strategy<Value = RelayTreeShape> {
    (chosen(TREE_SHAPES), any::<[usize; 2]>(), number(), number()).prop_map(
        |(kind, [degree_max, depth], tree_ns, mean_ns)| RelayTreeShape {
            kind,
            degree_max,
            depth,
            tree_ns,
            mean_ns,
        },
    )
}

#[test]
fn the_file_is_written_as_it_was_read() {
    let result: RelayTreeResult = read(TREE);
    assert_eq!(written(&result), TREE);
    assert_eq!(result.schema, RELAY_TREE_SCHEMA);
}

#[test]
fn fields_are_read_by_their_names() {
    let result: RelayTreeResult = read(TREE);
    assert_eq!((result.nodes[2].parent, result.nodes[2].child_index), (Some(0), 1));
    let send = &result.engines[0];
    assert_eq!((send.tree_ns, send.mean_ns, send.slowest), (28_000.75, 25_500.625, 2));
    let measured = send.measured.as_ref().unwrap();
    assert_eq!((measured.nodes.len(), measured.lost), (3, 1));
    assert_eq!(result.gain.unwrap().regular.leaves_ns, Some(16_500.25));
}

#[test]
fn fields_that_are_not_known_are_ignored() {
    let mut file: Value = read(TREE);
    with_unknown_fields(&mut file);
    assert_eq!(serde_json::from_value::<RelayTreeResult>(file).unwrap(), read(TREE));
}

proptest! {
    #[test]
    fn any_result_is_the_same_after_it_was_written_and_read(result in result()) {
        let text = serde_json::to_string(&result).unwrap();
        prop_assert_eq!(serde_json::from_str::<RelayTreeResult>(&text).unwrap(), result);
    }

    /// A field that is new is put into the golden file, and stays from then on.
    #[test]
    fn every_name_that_can_be_written_is_in_the_file(result in result()) {
        prop_assert_eq!(new_names(&result, TREE), Vec::<String>::new());
    }
}
