//! Roles find agents, options find addresses, and what cannot be placed is said.

use proptest::prelude::*;

use super::*;

fn agent(number: u8, labels: &[(&str, &str)]) -> AgentCandidate {
    let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    AgentCandidate {
        name: format!("n{number}").parse().unwrap(),
        labels: labels.collect(),
        addresses: vec![
            IpAddr::from([192, 0, 2, number]),
            format!("2001:db8::{number}").parse().unwrap(),
        ],
        kinds: RoleKind::ALL.to_vec(),
    }
}

fn agents(count: u8) -> Vec<AgentCandidate> {
    (1..=count).map(|number| agent(number, &[])).collect()
}

fn plan(roles: &str) -> Plan {
    let head = "schema = \"horolog.plan/2\"\nname = \"p\"\n";
    Plan::parse(&format!("{head}{roles}"), &[]).unwrap()
}

const SATURATION: &str = r#"
[[role]]
name = "server"
kind = "serve"
[role.options]
listen = ["{self}:123", "{self}:124"]
[[role]]
name = "load"
kind = "load-ntp"
count = 2
apart-from = ["server"]
[role.options]
target = "{server}:123"
rate = "1k"
"#;

const PAIRS: &str = r#"
[[role]]
name = "ends"
kind = "path-serve"
count = 3
[role.options]
listen = "{self}:8625"
[[role]]
name = "probe"
kind = "path-udp"
for-each-pair = "ends"
[role.options]
target = "{to}"
[[role]]
name = "timer"
kind = "host-timer"
for-each = "ends"
"#;

fn shown(placement: &Placement) -> Vec<String> {
    let one = |placed: &PlacedJob| {
        let options: Vec<_> = placed
            .job
            .options
            .iter()
            .map(|(name, values)| format!("{name}={}", values.join(",")))
            .collect();
        format!("{} {} {}", placed.agent, placed.job.id, options.join(" ")).trim_end().to_owned()
    };
    placement.jobs.iter().map(one).collect()
}

#[test]
fn roles_are_spread_and_options_filled_in() {
    let placement = assign_roles(&plan(SATURATION), &agents(3)).unwrap();
    assert_eq!(
        shown(&placement),
        [
            "n1 server.1 listen=192.0.2.1:123,192.0.2.1:124",
            "n2 load.1 rate=1k target=192.0.2.1:123",
            "n3 load.2 rate=1k target=192.0.2.1:123",
        ]
    );
    assert!(placement.jobs[0].job.service && !placement.jobs[1].job.service);
    let orders = placement.orders(&"c".parse().unwrap(), "0.1.0", &plan(SATURATION));
    let agents: Vec<_> = orders.iter().map(|order| order.agent.as_str()).collect();
    assert_eq!(agents, ["n1", "n2", "n3"]);
    assert!(orders.iter().all(|order| order.check(&order.agent, "0.1.0").is_ok()));
}

#[test]
fn pairs_run_on_the_first_of_each() {
    let placement = assign_roles(&plan(PAIRS), &agents(3)).unwrap();
    let probes: Vec<_> =
        shown(&placement).into_iter().filter(|line| line.contains("probe")).collect();
    assert_eq!(
        probes,
        [
            "n1 probe.1 target=192.0.2.2",
            "n1 probe.2 target=192.0.2.3",
            "n2 probe.3 target=192.0.2.1",
            "n2 probe.4 target=192.0.2.3",
            "n3 probe.5 target=192.0.2.1",
            "n3 probe.6 target=192.0.2.2",
        ]
    );
    let of = |text: &str| text.parse::<JobId>().unwrap();
    assert_eq!(placement.jobs[4].colocation, ColocationTarget::Pair(of("ends.1"), of("ends.3")));
    assert_eq!(placement.jobs[9].colocation, ColocationTarget::With(of("ends.1")));
    assert_eq!(placement.agents().len(), 3);
}

#[test]
fn children_are_dealt_out() {
    let tree = r#"
[[role]]
name = "middle"
kind = "relay-run"
count = 2
[role.options]
listen = "{self}:5000"
source = "{self}"
rate = "1k"
child = "{leaf.share}:6000"
[[role]]
name = "leaf"
kind = "relay-run"
count = 3
[role.options]
listen = "{self}:6000"
source = ["{middle.all}"]
rate = "1k"
[[role]]
name = "t"
kind = "host-timer"
"#;
    let placement = assign_roles(&plan(tree), &agents(5)).unwrap();
    let children: Vec<_> =
        placement.jobs.iter().map(|placed| placed.job.options.get("child").cloned()).collect();
    let to = |all: &[u8]| Some(all.iter().map(|n| format!("192.0.2.{n}:6000")).collect::<Vec<_>>());
    // The leaves took the first three agents that had nothing to do.
    assert_eq!(children[..2], [to(&[3, 5]), to(&[4])]);
    assert_eq!(children[2], None);
    assert_eq!(placement.jobs[2].job.options["source"], ["192.0.2.1", "192.0.2.2"]);
}

#[test]
fn addresses_are_of_a_kind_that_both_have() {
    let mut agents = agents(3);
    agents[1].addresses.remove(0);
    let placement = assign_roles(&plan(SATURATION), &agents).unwrap();
    assert_eq!(placement.jobs[1].job.options["target"], ["[2001:db8::1]:123"]);
    assert_eq!(placement.jobs[2].job.options["target"], ["192.0.2.1:123"]);
    agents[1].addresses.clear();
    let fault = assign_roles(&plan(SATURATION), &agents).unwrap_err();
    assert!(
        fault.reason.contains("2 agents are left") || fault.reason.contains("apart"),
        "{fault}"
    );
}

#[test]
fn missing_agents_and_labels_are_named() {
    let labelled =
        SATURATION.replace("count = 2\n", "count = 2\nlabels = { site = \"b\", os = \"x\" }\n");
    let some = [agent(1, &[]), agent(2, &[("site", "b")]), agent(3, &[("site", "a")])];
    let fault = assign_roles(&plan(&labelled), &some).unwrap_err();
    assert_eq!(
        fault.to_string(),
        "line 10: role 'load' needs 2 agents with os=x, site=b that may run load-ntp, and there is \
         none; no usable agent has the label os=x"
    );
    let fault = assign_roles(&plan(SATURATION), &agents(2)).unwrap_err();
    assert_eq!(
        fault.to_string(),
        "line 10: role 'load' is apart from 'server', which takes 3 agents, and the \
         2 suitable ones are not enough for each; start more agents, or change labels or \
         apart-from"
    );
    let fault = assign_roles(&plan(SATURATION), &agents(1)).unwrap_err();
    assert!(fault.reason.ends_with("and there is one: n1"), "{fault}");
    let fault = assign_roles(&plan(SATURATION), &[]).unwrap_err();
    assert!(fault.is_empty && fault.reason.ends_with("and there is none"), "{fault}");
    let mut weak = agents(3);
    for one in &mut weak {
        one.kinds.retain(|kind| *kind != RoleKind::PathUdp);
    }
    // The ends' agents run the probes too.
    let fault = assign_roles(&plan(PAIRS), &weak).unwrap_err();
    assert!(fault.reason.contains("may run path-serve and path-udp and host-timer"), "{fault}");
    assert!(fault.reason.ends_with("; no usable agent's policy allows path-udp"), "{fault}");
}

#[test]
fn resolved_options_are_checked() {
    let text = SATURATION.replace("rate = \"1k\"", "rate = \"{server}\"");
    let fault = assign_roles(&plan(&text), &agents(3)).unwrap_err();
    assert_eq!(fault.line, 16);
    assert!(fault.reason.starts_with("load.1: invalid 'rate' of load-ntp, '192.0.2.1'"), "{fault}");
}

#[test]
fn what_takes_longer_than_the_plan_is_refused() {
    let timer = |time: &str| {
        let role = "duration-max = \"5s\"\n[[role]]\nname = \"t\"\nkind = \"host-timer\"\n";
        assign_roles(&plan(&format!("{role}[role.options]\ntime = \"{time}\"\n")), &agents(1))
    };
    assert!(timer("5s").is_ok());
    let fault = timer("5001ms").unwrap_err();
    assert_eq!((fault.line, fault.is_option), (8, true));
    assert!(
        fault
            .reason
            .starts_with("t.1: 'time' is 5.001 s, which exceeds the plan's duration-max of 5 s")
    );
}

#[test]
fn how_many_agents_a_plan_needs_is_known() {
    assert_eq!(agents_needed(&plan(SATURATION)), 3);
    assert_eq!(agents_needed(&plan(PAIRS)), 3);
    assert_eq!(agents_needed(&plan(&SATURATION.replace("apart-from = [\"server\"]\n", ""))), 2);
}

proptest! {
    /// Wherever it is possible at all, with each job where its role may be.
    #[test]
    fn every_instance_is_placed_once(count in 1_u32..8, spare in 0_u8..4, shuffle: bool) {
        let plan = plan(&SATURATION.replace("count = 2", &format!("count = {count}")));
        let needed = agents_needed(&plan) as u8;
        prop_assert_eq!(needed, count as u8 + 1);
        let mut all = agents(needed + spare);
        if shuffle {
            all.reverse();
        }
        let placement = assign_roles(&plan, &all).unwrap();
        prop_assert_eq!(placement.jobs.len() as u64, plan.instances());
        prop_assert_eq!(placement.agents().len(), placement.jobs.len());
        prop_assert!(assign_roles(&plan, &all[..usize::from(needed) - 1]).is_err());
    }
}
