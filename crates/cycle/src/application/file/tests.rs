//! Test files that are read, and what is said of those that are not.

use proptest::prelude::*;

use super::*;
use crate::application::SAMPLE_TEST_FILE;

const HEAD: &str = "schema = \"horolog.test/2\"\nname = \"a\"\ntime = \"10s\"\nperiod = \
                    \"50ms\"\n";
const STAGE: &str = "[[stage]]\nname = \"s\"\nintake = true\n";
const SOURCE: &str = "[[source]]\nname = \"r\"\nrate = 10\nsize = 64\n";

fn wrong(text: &str) -> String {
    ApplicationTestPlan::parse(text).unwrap_err().to_string()
}

#[test]
fn the_sample_is_a_test() {
    let plan = ApplicationTestPlan::parse(SAMPLE_TEST_FILE).unwrap();
    assert_eq!((plan.nodes, plan.period_count()), (2, plan.time_ns / plan.period_ns));
    assert!(plan.sources.len() >= 3 && plan.stages.len() >= 3 && plan.faults.len() >= 6);
    for state in ["data simulation", "state simulation", "fault tolerance"] {
        assert!(plan.state_names().contains(&state), "{state}");
    }
    assert_eq!(plan.clone().with_nodes(2), Ok(plan.clone()));
    assert!(plan.with_nodes(1).unwrap_err().contains("node 2 does not exist"));
}

#[test]
fn omitted_keys_have_their_default_values() {
    let plan = ApplicationTestPlan::parse(&[HEAD, STAGE, SOURCE].concat()).unwrap();
    assert_eq!((plan.nodes, plan.deadline_ns, plan.steady), (2, 50_000_000, 5));
    assert_eq!((plan.node_timeout, plan.response_limit_ns), (3, 12_500_000));
    assert_eq!(plan.sources[0].late_after_ns, 150_000_000);
    assert_eq!(plan.sources[0].size, ReportLengthDistribution::OneOf(vec![64]));
    assert_eq!(plan.state_at(0), "plain");
}

#[test]
fn errors_name_their_line() {
    let all = |more: &str| [HEAD, STAGE, SOURCE, more].concat();
    let fault = |lines: &str| all(&format!("[[fault]]\n{lines}\n"));
    for (text, words) in [
        (HEAD.replace("test/2", "test/1"), "line 1: unsupported schema; this version reads"),
        (HEAD.replace("50ms", "soon"), "line 4: write a time such as"),
        (HEAD.to_owned(), "there are 0 stages; use 1 to 16"),
        (format!("{HEAD}policy = \"best\"\n"), "line 5: write fifo, rr"),
        (
            format!("{HEAD}policy = \"deadline\"\n"),
            "line 5: write policy fifo, rr or other: execution",
        ),
        (format!("{HEAD}priority = 80\npolicy = \"deadline\"\n"), "line 6: write policy fifo"),
        (format!("{HEAD}colour = 1\n"), "line 5: unknown field"),
        (format!("{HEAD}{STAGE}"), "no source exists"),
        (format!("{HEAD}{SOURCE}[[stage]]\nname = \"s\"\nbarrier = true\n"), "0 stages take"),
        (all("[[stage]]\nname = \"t\"\n"), "line 12: a stage has no work"),
        (all(SOURCE), "line 13: another source"),
        (all(&SOURCE.replace("\"r\"", "\"q\"").replace("64", "8")), "line 12: a report has"),
        (all(&SOURCE.replace("\"r\"", "\"q\"").replace("= 10", "= -1")), "line 12: a rate is"),
        (fault("kind = \"rain\"\nat = \"1s\""), "line 13: write one of data-error"),
        (fault("kind = \"lost\"\nat = \"1s\""), "line 12: a fault of kind lost needs for"),
        (
            fault("kind = \"lost\"\nat = \"1s\"\nfor = \"1s\"\nsource = \"x\""),
            "line 16: no source has this name",
        ),
        (
            fault("kind = \"stop\"\nat = \"1s\"\nfor = \"1s\"\nnode = 3"),
            "line 12: node 3 does not exist",
        ),
        (
            fault("kind = \"stop\"\nat = \"9s\"\nfor = \"900ms\"\nnode = 2"),
            "line 12: the fault 'stop' at 9000 ms ends 9900 ms after the test begins",
        ),
        (
            fault("kind = \"slow\"\nat = \"1s\"\nfor = \"1s\"\nnode = 2\nfactor = 0"),
            "line 12: a factor is 0.01 to 100",
        ),
        (
            fault("kind = \"late\"\nat = \"1s\"\nfor = \"1s\"\ndelay = \"1s\"\nshare = 2"),
            "line 12: a share is",
        ),
        (all("[[state]]\nname = \"a\"\nfrom = \"2s\"\nto = \"1s\"\n"), "line 12: a state begins"),
        (
            all(&"[[state]]\nname = \"a\"\nfrom = \"1s\"\nto = \"2s\"\n".repeat(2)),
            "line 16: the state 'a' overlaps",
        ),
    ] {
        let why = wrong(&text);
        assert!(why.starts_with(words) || why.contains(words), "{words}: {why}");
        assert!(!why.contains('\n'), "{why}");
    }
}

#[test]
fn another_time_and_number_of_nodes_are_taken_before_faults_are_judged() {
    let fault = "[[fault]]\nkind = \"stop\"\nat = \"8s\"\nfor = \"1s\"\nnode = 2\n";
    let text = [HEAD, STAGE, SOURCE, fault].concat();
    let why =
        ApplicationTestPlan::parse_with(&text, None, Some(5_000_000_000)).unwrap_err().to_string();
    assert!(why.starts_with("line 12: the fault 'stop' at 8000 ms ends 9000 ms"), "{why}");
    assert!(why.contains("takes 5000 ms") && why.ends_with("(--time 9400ms)"), "{why}");
    let longer = text.replace("at = \"8s\"", "at = \"80s\"");
    assert!(ApplicationTestPlan::parse(&longer).is_err());
    assert_eq!(
        ApplicationTestPlan::parse_with(&longer, Some(3), Some(90_000_000_000)).unwrap().nodes,
        3
    );
    let why = ApplicationTestPlan::parse_with(&text, Some(1), None).unwrap_err().to_string();
    assert!(why.starts_with("line 12: node 2 does not exist"), "{why}");
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused_in_one_line(lines in "(?s).{0,300}") {
        if let Err(fault) = ApplicationTestPlan::parse(&lines) {
            prop_assert!(!fault.to_string().contains('\n'));
        }
    }
}

#[test]
fn a_time_that_is_advised_is_long_enough() {
    let why = ApplicationTestPlan::parse_with(SAMPLE_TEST_FILE, None, Some(4_000_000_000))
        .unwrap_err()
        .to_string();
    let (_, advised) = why.split_once("--time ").unwrap();
    let ms: u64 = advised.split_once("ms").unwrap().0.parse().unwrap();
    assert!(
        ApplicationTestPlan::parse_with(SAMPLE_TEST_FILE, None, Some(ms * 1_000_000)).is_ok(),
        "{why}"
    );
}
