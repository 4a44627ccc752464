//! The delay model against sums that are written out, against every small tree that there is, and
//! against the statements of the paper.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("n{number}")).collect()
}

fn edge(from: usize, to: usize, delay_ns: f64) -> TreeEdge {
    TreeEdge { from, to, delay_ns }
}

fn takes(first_ns: f64, next_ns: f64) -> ProcessingTime {
    ProcessingTime { first_ns, next_ns }
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 + 1e-9 * a.abs().max(b.abs())
}

/// A root with two children, the first of which has two more; both engines differ by node.
fn example() -> (Tree, EngineProcessingTimes, EngineProcessingTimes) {
    let edges = [edge(0, 1, 100.0), edge(0, 2, 200.0), edge(1, 3, 10.0), edge(1, 4, 20.0)];
    let tree = Tree::new(&names(5), &edges).unwrap();
    let mut before = EngineProcessingTimes::uniform("user-space", &tree, takes(50.0, 30.0));
    before.processing[1] = takes(70.0, 40.0);
    let after = EngineProcessingTimes::uniform("in-kernel", &tree, takes(20.0, 1.0));
    (tree, before, after)
}

#[test]
fn delays_are_the_sums_along_the_way() {
    let (tree, before, after) = example();
    let old = tree_delays(&tree, &before);
    assert_eq!(old.node_ns, [0.0, 150.0, 280.0, 230.0, 280.0]);
    assert_eq!((old.tree_ns, old.slowest_leaf), (280.0, 2));
    assert!(near(old.mean_ns, 940.0 / 4.0));
    let new = tree_delays(&tree, &after);
    assert_eq!(new.node_ns, [0.0, 120.0, 221.0, 150.0, 161.0]);
    assert_eq!(delay_between(&tree, &before, 1, 4), Some(130.0));
    assert_eq!(delay_between(&tree, &before, 0, 4), Some(280.0));
    assert_eq!(delay_between(&tree, &before, 2, 4), None);
    assert_eq!(delay_between(&tree, &before, 4, 4), Some(0.0));
}

#[test]
fn gains_are_differences_of_delays() {
    let (tree, before, after) = example();
    let all = replacement_gain(&tree, &before, &after);
    assert!(near(all.tree_ns, 59.0) && near(all.mean_ns, (30.0 + 59.0 + 80.0 + 119.0) / 4.0));
    // Node 4 is as slow before, and no longer after; the first of the slowest counts.
    assert!(all.same_path && near(all.along_path_ns, 59.0));
    let processing: Vec<f64> = all.nodes.iter().map(|node| node.processing_ns).collect();
    assert_eq!(processing, [44.5, 69.5, 0.0, 0.0, 0.0]);
    assert!(near(all.mean_as_published_ns, 69.5 / 4.0), "without the root, and each node once");
    // Each replaced alone: the other's slowest leaf stays.
    assert!(near(all.nodes[0].tree_ns, 30.0) && near(all.nodes[1].tree_ns, 0.0));
}

/// The tree with every other engine replaced, or one.
fn replaced(
    tree: &Tree,
    before: &EngineProcessingTimes,
    after: &EngineProcessingTimes,
    node: usize,
) -> TreeDelays {
    let mut one = before.clone();
    one.processing[node] = after.processing[node];
    tree_delays(tree, &one)
}

#[test]
fn in_a_regular_tree_equation_4_is_exact_with_the_leaves_for_n() {
    for (degree, depth) in [(2, 1), (2, 5), (3, 4), (7, 3)] {
        let tree = Tree::regular(degree, depth, 40.0).unwrap();
        let before = EngineProcessingTimes::uniform("a", &tree, takes(20.0, 5.0));
        let after = EngineProcessingTimes::uniform("b", &tree, takes(8.0, 0.5));
        let all = replacement_gain(&tree, &before, &after);
        assert_eq!(all.equation_4.violated_assumptions, []);
        assert!(near(all.equation_4.leaves_ns.unwrap(), all.tree_ns), "{degree} {depth}");
        assert!(near(all.along_path_ns, all.tree_ns));
        let processing = 12.0 + 4.5 * (degree - 1) as f64;
        assert!(near(all.equation_4.processing_ns, processing));
        let printed = all.equation_4.all_nodes_ns.unwrap();
        assert!(printed > all.tree_ns && printed < all.tree_ns + processing);
    }
}

#[test]
fn violated_assumptions_of_equation_4_are_listed() {
    let broken = |tree: &Tree, before: &EngineProcessingTimes, after: &EngineProcessingTimes| {
        replacement_gain(tree, before, after).equation_4.violated_assumptions
    };
    let (tree, before, after) = example();
    let what = broken(&tree, &before, &after);
    assert_eq!(
        what,
        [RegularTreeGainAssumption::SameDepth, RegularTreeGainAssumption::SameProcessing]
    );
    let chain = Tree::regular(1, 3, 1.0).unwrap();
    let before = EngineProcessingTimes::uniform("a", &chain, takes(20.0, 5.0));
    let all = replacement_gain(
        &chain,
        &before,
        &EngineProcessingTimes::uniform("b", &chain, takes(1.0, 1.0)),
    );
    assert_eq!(all.equation_4.violated_assumptions, [RegularTreeGainAssumption::SameDegree]);
    assert_eq!((all.equation_4.leaves_ns, all.equation_4.all_nodes_ns), (None, None));
    // The long edge is at the first index of the root, and at the last one below.
    let edges = [edge(0, 1, 90.0), edge(0, 2, 1.0), edge(1, 3, 1.0), edge(1, 4, 1.0)];
    let edges = [&edges[..], &[edge(2, 5, 1.0), edge(2, 6, 1.0)]].concat();
    let tree = Tree::new(&names(7), &edges).unwrap();
    let before = EngineProcessingTimes::uniform("a", &tree, takes(20.0, 5.0));
    let after = EngineProcessingTimes::uniform("b", &tree, takes(8.0, 0.0));
    assert_eq!(broken(&tree, &before, &after), [RegularTreeGainAssumption::SameIndex]);
    let other = EngineProcessingTimes::uniform("c", &tree, takes(8.0, 200.0));
    assert!(broken(&tree, &before, &other).contains(&RegularTreeGainAssumption::SamePath));
}

#[test]
fn equation_7_as_printed_is_less_than_what_5_and_6_give() {
    let tree = Tree::regular(2, 4, 40.0).unwrap();
    let before = EngineProcessingTimes::uniform("a", &tree, takes(20.0, 0.0));
    let after = EngineProcessingTimes::uniform("b", &tree, takes(8.0, 0.0));
    let all = replacement_gain(&tree, &before, &after);
    // Every node but the root has as many nodes above it as its depth, each of which gains 12.
    let depths: usize = tree.nodes().iter().map(|node| node.depth).sum();
    assert!(near(all.mean_ns, 12.0 * depths as f64 / 30.0));
    // The paper: the mean gain is smaller than that of a single node. It is more.
    assert!(all.mean_as_published_ns < 12.0 && all.mean_ns > 12.0);
    assert!(near(all.mean_as_published_ns, 12.0 * 14.0 / 30.0));
}

#[test]
fn what_is_no_tree_is_refused() {
    let refused = |count, edges: &[(usize, usize)]| {
        let edges: Vec<TreeEdge> = edges.iter().map(|(from, to)| edge(*from, *to, 1.0)).collect();
        Tree::new(&names(count), &edges).unwrap_err().to_string()
    };
    assert_eq!(refused(1, &[]), "a tree has at least two nodes; a single node has no delay");
    assert_eq!(refused(2, &[(1, 1)]), "node 'n1' is its own child");
    assert!(refused(3, &[(0, 1), (0, 2), (1, 2)]).contains("two parents, 'n0' and 'n1'"));
    assert_eq!(refused(2, &[(0, 1), (0, 1)]), "'n1' is listed twice as a child of 'n0'");
    assert!(refused(3, &[(0, 1), (1, 2), (2, 0)]).starts_with("the tree has no root"));
    assert!(refused(4, &[(0, 1), (2, 3), (3, 2)]).contains("a cycle: n3 → n2 → n3"));
    assert!(refused(5, &[(1, 2), (2, 3), (3, 1), (3, 4)]).contains("n2 → n3 → n1 → n2"));
    assert_eq!(refused(3, &[(0, 2)]), "'n0' and 'n1' both have no parent; a tree has one root");
    assert!(matches!(
        Tree::regular(2, 16, 0.0),
        Err(TreeShapeError::RegularTooLarge { degree: 2, depth: 16 })
    ));
    assert!(matches!(Tree::regular(1 << 40, 9, 0.0), Err(TreeShapeError::RegularTooLarge { .. })));
    assert_eq!(Tree::regular(0, 3, 0.0), Err(TreeShapeError::ZeroDegreeOrDepth));
    let long: Vec<(usize, usize)> = (0..20).map(|at| (at, (at + 1) % 20)).collect();
    assert!(refused(20, &long).ends_with("→ …"), "{}", refused(20, &long));
}

#[test]
fn a_tree_file_is_read_and_written() {
    let text = "nodes = [\"a\", \"b\", \"c\"]\n[[processing]]\nengine = \"slow\"\nfirst-us = 20\n\
                next-us = 5.5\n[[processing]]\nengine = \"slow\"\nnode = \"c\"\nfirst-us = 1\n\
                next-us = 0\n[[edge]]\nfrom = \"b\"\nto = \"c\"\ndelay-us = 100\n\
                [[edge]]\nfrom = \"c\"\nto = \"a\"\ndelay-us = 0.25\n";
    let file = TreeFile::parse(text).unwrap();
    let nodes: Vec<_> = file.tree.nodes().iter().map(|node| (&*node.name, node.delay_ns)).collect();
    assert_eq!(nodes, [("b", 0.0), ("c", 100_000.0), ("a", 250.0)]);
    let slow = &file.engines[0];
    assert_eq!(slow.processing[..2], [takes(20_000.0, 5_500.0), takes(1_000.0, 0.0)]);
    assert_eq!(TreeFile::parse(&file.to_toml()), Ok(file));
}

#[test]
fn error_of_a_tree_file_names_its_line() {
    let fault = |text: &str| TreeFile::parse(text).unwrap_err().to_string();
    let with = |rest: &str| fault(&format!("nodes = [\"a\", \"b\",\n\"c\"]\n{rest}"));
    let edge = |from: &str, to: &str, delay: &str| {
        format!("[[edge]]\nfrom = \"{from}\"\nto = \"{to}\"\ndelay-us = {delay}\n")
    };
    let two = |rest: &str| with(&(edge("a", "b", "1") + &edge("a", "c", "1") + rest));
    assert!(fault("").contains("nodes"), "{}", fault(""));
    assert_eq!(fault("nodes = [\"a\",\n\"a\"]"), "line 2: node 'a' is listed twice");
    assert!(fault("nodes = [\"a b\"]").contains("invalid node name 'a b'"));
    assert!(with("[[edge]]\nfrom = \"a\"\n").starts_with("line 3: missing field"));
    let negative = with(&edge("a", "b", "-1"));
    assert_eq!(negative, "line 6: delay-us is -1 µs; a time cannot be negative");
    assert!(with(&edge("a", "b", "nan")).starts_with("line 6: delay-us is NaN µs; write"));
    assert!(with(&edge("a", "x", "1")).starts_with("line 5: node 'x' is not in the list"));
    assert!(two(&edge("b", "c", "1")).starts_with("line 11: node 'c' has two parents, 'a'"));
    assert!(two(&edge("b", "b", "1")).starts_with("line 11: node 'b' is its own child"));
    let round = edge("a", "b", "1") + &edge("b", "c", "1") + &edge("c", "a", "1");
    assert!(with(&round).starts_with("line 1: the tree has no root, because"));
    assert!(with(&edge("a", "b", "1")).starts_with("line 1: 'a' and 'c' both have no parent"));
    let processing = |engine: &str, node: &str| {
        format!("[[processing]]\nengine = \"{engine}\"\n{node}first-us = 1\nnext-us = 1\n")
    };
    let of_b = processing("x", "node = \"b\"\n");
    assert!(two(&of_b).starts_with("line 11: engine 'x' has no processing for node 'a'"));
    assert!(two(&(of_b.clone() + &of_b)).starts_with("line 16: engine 'x' has this"));
    let three = processing("x", "") + &processing("y", "") + &processing("z", "");
    assert!(two(&three).starts_with("line 20: a tree supports at most 2 engines"));
}

#[test]
fn a_file_of_pairs_is_read() {
    let text = "# measured today\nfrom,to,delay_us\na,b,100\n\n b , a , 300.5\nc,a,7\n";
    let pairs = PairDelays::parse(text).unwrap();
    assert_eq!(pairs.names(), ["a", "b", "c"]);
    assert_eq!((pairs.delay_ns(0, 1), pairs.delay_ns(1, 0)), (100_000.0, 300_500.0));
    assert_eq!((pairs.delay_ns(2, 0), pairs.delay_ns(0, 2)), (7_000.0, 7_000.0), "either way");
    assert!(pairs.delay_ns(1, 2).is_infinite());
    let fault = |text: &str| PairDelays::parse(text).unwrap_err().to_string();
    assert_eq!(fault(""), "line 1: no pairs; the first line must be 'from,to,delay_us'");
    assert_eq!(fault("\na,b,1"), "line 2: the first line must be 'from,to,delay_us'");
    let line = |line: &str| fault(&format!("from,to,delay_us\na,b,1\n{line}\n"));
    for bad in ["a,b", "a,b,1,2", "a,c,fast", "a"] {
        assert!(line(bad).starts_with("line 3: write 'from,to,delay_us', such as"), "{bad}");
    }
    assert_eq!(line("b,a,-2"), "line 3: delay_us is -2 µs; a time cannot be negative");
    assert!(line("b,a,inf").starts_with("line 3: delay_us is inf µs; write a number"));
    assert_eq!(line("c,c,1"), "line 3: 'c' and 'c' are the same node");
    assert_eq!(line("a,b,2"), "line 3: the pair 'a', 'b' occurs in line 2 already");
    assert!(line("a b,c,2").starts_with("line 3: invalid node name 'a b'"));
    let many: Vec<String> = (0..=PAIR_NODES_MAX).map(|at| format!("root,n{at},1\n")).collect();
    let many = fault(&format!("from,to,delay_us\n{}", many.concat()));
    assert_eq!(many, "line 1025: there are more than 1024 nodes");
}

#[test]
fn unreachable_nodes_are_reported() {
    let pairs = PairDelays::parse("from,to,delay_us\na,b,1\nc,d,1\n").unwrap();
    let error = compact_tree(&pairs, 0, 4, takes(1.0, 1.0)).unwrap_err().to_string();
    assert!(error.starts_with("no path found to 'c' and 1 more nodes with at most 4"), "{error}");
    assert!(star_tree(&pairs, 0).is_err() && chain_tree(&pairs, 0).is_err());
    let star_shaped = PairDelays::parse("from,to,delay_us\na,b,1\na,c,1\n").unwrap();
    assert!(compact_tree(&star_shaped, 0, 1, takes(1.0, 1.0)).is_err());
    assert!(compact_tree(&star_shaped, 0, 2, takes(1.0, 1.0)).is_ok());
}

/// Every tree over the nodes with the first as its root, children in every order.
fn all_trees(count: usize, degree_max: usize, delay_ns: &dyn Fn(usize, usize) -> f64) -> Vec<Tree> {
    let mut trees = Vec::new();
    // Edges one after the other in every order have every parent and every index among them.
    let mut partial: Vec<Vec<TreeEdge>> = vec![Vec::new()];
    while let Some(edges) = partial.pop() {
        if edges.len() == count - 1 {
            trees.push(Tree::new(&names(count), &edges).unwrap());
            continue;
        }
        let joined = |at: usize| at == 0 || edges.iter().any(|edge| edge.to == at);
        for from in (0..count).filter(|at| joined(*at)) {
            if edges.iter().filter(|edge| edge.from == from).count() == degree_max {
                continue;
            }
            for to in (0..count).filter(|at| !joined(*at)) {
                partial.push([&edges[..], &[edge(from, to, delay_ns(from, to))]].concat());
            }
        }
    }
    trees
}

fn smallest(trees: &[Tree], processing: ProcessingTime) -> f64 {
    let of = |tree: &Tree| {
        tree_delays(tree, &EngineProcessingTimes::uniform("x", tree, processing)).tree_ns
    };
    trees.iter().map(of).fold(f64::INFINITY, f64::min)
}

#[test]
fn where_all_pairs_are_alike_no_tree_is_better() {
    for degree_max in 1..=4 {
        for (first, next, delay) in
            [(1.0, 1.0, 1.0), (5.0, 1.0, 9.0), (0.0, 4.0, 1.0), (3.0, 0.0, 0.0)]
        {
            let mut pairs = PairDelays::new(names(5));
            for (from, to) in (0..5).flat_map(|from| (0..5).map(move |to| (from, to))) {
                pairs.set(from, to, delay);
            }
            let best = smallest(&all_trees(5, degree_max, &|_, _| delay), takes(first, next));
            let tree = compact_tree(&pairs, 0, degree_max, takes(first, next)).unwrap();
            let found = smallest(&[tree], takes(first, next));
            assert!(near(found, best), "{found} {best}: {degree_max} {first} {next} {delay}");
        }
    }
}

/// A tree of up to 24 nodes: the parent of each, and the delay of its edge.
fn any_tree() -> impl Strategy<Value = Tree> {
    vec((any::<prop::sample::Index>(), 0.0..1e6), 1..24).prop_map(|edges| {
        let hang = |(at, (parent, delay)): (usize, &(prop::sample::Index, f64))| {
            edge(parent.index(at + 1), at + 1, *delay)
        };
        let hung: Vec<TreeEdge> = edges.iter().enumerate().map(hang).collect();
        Tree::new(&names(hung.len() + 1), &hung).unwrap()
    })
}

fn any_engine() -> impl Strategy<Value = Vec<ProcessingTime>> {
    vec((0.0..1e5, 0.0..1e5), 24)
        .prop_map(|times| times.into_iter().map(|(first, next)| takes(first, next)).collect())
}

fn of(tree: &Tree, processing: &[ProcessingTime]) -> EngineProcessingTimes {
    EngineProcessingTimes {
        name: "x".to_owned(),
        processing: processing[..tree.nodes().len()].to_vec(),
    }
}

fn any_pairs(count: usize) -> impl Strategy<Value = PairDelays> {
    vec(0.0..1e6, count * count).prop_map(move |delays| {
        let mut pairs = PairDelays::new(names(count));
        for (at, delay) in delays.into_iter().enumerate() {
            pairs.set(at / count, at % count, delay);
        }
        pairs
    })
}

/// The heuristic has no bound: a chain of nodes that can be near one another may be long. The cases
/// are therefore always the same.
#[test]
fn compact_trees_are_close_to_the_best_ones() {
    use proptest::strategy::ValueTree as _;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let cases = (any_pairs(5), 0.0..1e6, 0.0..1e6, 1..5_usize);
    let mut ratio = || {
        let (pairs, first, next, degree_max) = cases.new_tree(&mut runner).unwrap().current();
        let processing = takes(first, next);
        let tree = compact_tree(&pairs, 0, degree_max, processing).unwrap();
        let every = all_trees(5, degree_max, &|from, to| pairs.delay_ns(from, to));
        smallest(&[tree], processing) / smallest(&every, processing)
    };
    let mut ratios: Vec<f64> = (0..400).map(|_| ratio()).collect();
    ratios.sort_by(f64::total_cmp);
    let (median, worst) = (ratios[200], ratios[399]);
    assert!(median < 1.1 && worst < 4.0, "median {median}, worst {worst}");
}

proptest! {
    #[test]
    fn a_node_is_behind_its_parent_and_the_slowest_is_a_leaf(tree in any_tree(), times in any_engine()) {
        let engine = of(&tree, &times);
        let all = tree_delays(&tree, &engine);
        for (at, node) in tree.nodes().iter().enumerate() {
            let parent = node.parent.unwrap_or(0);
            prop_assert!(parent < at || at == 0);
            prop_assert!(all.node_ns[at] >= all.node_ns[parent]);
            let whole = delay_between(&tree, &engine, 0, at).unwrap();
            prop_assert!(near(whole, all.node_ns[at]));
            let halves = all.node_ns[parent] + delay_between(&tree, &engine, parent, at).unwrap();
            prop_assert!(near(halves, whole));
        }
        prop_assert!(tree.nodes()[all.slowest_leaf].children.is_empty());
        prop_assert!(near(all.tree_ns, all.node_ns.iter().copied().fold(0.0, f64::max)));
        prop_assert!(all.mean_ns <= all.tree_ns * (1.0 + 1e-12));
    }

    #[test]
    fn a_node_that_takes_longer_makes_nothing_sooner(
        tree in any_tree(), times in any_engine(), at in any::<prop::sample::Index>(), more in 0.0..1e5,
    ) {
        let mut slower = times.clone();
        let node = at.index(tree.nodes().len());
        slower[node].first_ns += more;
        slower[node].next_ns += more;
        let (old, new) = (tree_delays(&tree, &of(&tree, &times)), tree_delays(&tree, &of(&tree, &slower)));
        for (old, new) in old.node_ns.iter().zip(&new.node_ns) {
            prop_assert!(new >= old);
        }
        prop_assert!(new.tree_ns >= old.tree_ns && new.mean_ns >= old.mean_ns);
    }

    #[test]
    fn gains_of_single_nodes_are_those_of_trees_with_one_replaced(
        tree in any_tree(), times in any_engine(), others in any_engine(),
    ) {
        let (before, after) = (of(&tree, &times), of(&tree, &others));
        let (all, old) = (replacement_gain(&tree, &before, &after), tree_delays(&tree, &before));
        for (node, gain) in all.nodes.iter().enumerate() {
            let one = replaced(&tree, &before, &after, node);
            prop_assert!(near(old.tree_ns - one.tree_ns, gain.tree_ns), "{node}");
            prop_assert!(near(old.mean_ns - one.mean_ns, gain.mean_ns), "{node}");
        }
        let sum: f64 = all.nodes.iter().map(|node| node.mean_ns).sum();
        prop_assert!(near(sum, all.mean_ns), "the mean's gains add up: {sum} {}", all.mean_ns);
        if all.same_path {
            prop_assert!(near(all.along_path_ns, all.tree_ns));
        }
    }

    #[test]
    fn where_4_applies_it_is_exact(
        degree in 2..5_usize, depth in 1..5_usize, delay in 0.0..1e5, times in any_engine(),
    ) {
        let tree = Tree::regular(degree, depth, delay).unwrap();
        let (before, after) = (
            EngineProcessingTimes::uniform("a", &tree, times[0]), EngineProcessingTimes::uniform("b", &tree, times[1]),
        );
        let all = replacement_gain(&tree, &before, &after);
        prop_assert_eq!(&all.equation_4.violated_assumptions, &[]);
        prop_assert!(near(all.equation_4.leaves_ns.unwrap(), all.tree_ns));
    }

    #[test]
    fn files_are_read_as_they_were_written(tree in any_tree(), times in any_engine()) {
        let engines = vec![of(&tree, &times)];
        let file = TreeFile { tree, engines };
        let read = TreeFile::parse(&file.to_toml()).unwrap();
        for (old, new) in file.tree.nodes().iter().zip(read.tree.nodes()) {
            prop_assert_eq!((&old.name, old.parent, old.child_index), (&new.name, new.parent, new.child_index));
            prop_assert!(near(old.delay_ns, new.delay_ns));
        }
        let (old, new) = (tree_delays(&file.tree, &file.engines[0]), tree_delays(&read.tree, &read.engines[0]));
        prop_assert!(near(old.tree_ns, new.tree_ns));
    }

    #[test]
    fn a_compact_tree_keeps_the_limit_and_no_order_of_children_is_better(
        pairs in any_pairs(5), first in 0.0..1e6, next in 0.0..1e6, degree_max in 1..5_usize,
    ) {
        let processing = takes(first, next);
        let tree = compact_tree(&pairs, 0, degree_max, processing).unwrap();
        prop_assert!(tree.degree_max() <= degree_max);
        prop_assert_eq!(&tree.nodes()[0].name, "n0");
        let number = |at: usize| tree.nodes()[at].name[1..].parse::<usize>().unwrap();
        let parent = |at: usize| {
            let node = tree.nodes().iter().find(|node| node.name == format!("n{at}")).unwrap();
            node.parent.map(number)
        };
        let found = smallest(std::slice::from_ref(&tree), processing);
        let every = all_trees(5, degree_max, &|from, to| pairs.delay_ns(from, to));
        let (same, best) = (every.iter().filter(|other| {
            other.nodes().iter().all(|node| {
                let own = node.name[1..].parse().unwrap();
                node.parent.map(|at| other.nodes()[at].name[1..].parse().unwrap()) == parent(own)
            })
        }), smallest(&every, processing));
        let same: Vec<Tree> = same.cloned().collect();
        prop_assert!(near(smallest(&same, processing), found));
        prop_assert!(found >= best * (1.0 - 1e-9), "{found} {best}");
        for other in [star_tree(&pairs, 0).unwrap(), chain_tree(&pairs, 0).unwrap()] {
            prop_assert_eq!(other.nodes().len(), 5);
        }
    }
}
