//! Any text as the plan of a campaign and as the policy of an agent: reading it never panics, and
//! an error is one line. A valid plan is assigned to some agents, or the error names what they
//! lack, and an agent can read each order; a policy is the same when it was written and read
//! again.
#![no_main]

use horolog_campaign::FileContentError;
use horolog_campaign::placement::{AgentCandidate, assign_roles};
use horolog_campaign::plan::Plan;
use horolog_campaign::policy::AgentPolicy;
use horolog_campaign::role::RoleKind;
use libfuzzer_sys::fuzz_target;

fn is_one_line(fault: &FileContentError, text: &str) {
    let lines = 1 + text.matches('\n').count();
    assert!(fault.line.is_none_or(|line| (1..=lines).contains(&line)), "{fault:?}");
    assert!(!fault.reason.contains('\n'), "{fault:?}");
}

fn agent(number: u8) -> Option<AgentCandidate> {
    Some(AgentCandidate {
        name: format!("n{number}").parse().ok()?,
        labels: [("site".to_owned(), "a".to_owned())].into(),
        addresses: vec![[192, 0, 2, number].into()],
        kinds: RoleKind::ALL.to_vec(),
    })
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = str::from_utf8(bytes) else { return };
    match AgentPolicy::parse(text) {
        Ok(policy) => assert_eq!(AgentPolicy::parse(&policy.to_toml()), Ok(policy)),
        Err(fault) => is_one_line(&fault, text),
    }
    let plan = match Plan::parse(text, &[]) {
        Ok(plan) => plan,
        Err(fault) => return is_one_line(&fault, text),
    };
    let agents: Vec<_> = (1..=4).filter_map(agent).collect();
    let (Ok(placement), Ok(campaign)) = (assign_roles(&plan, &agents), "fuzz".parse()) else {
        return;
    };
    assert_eq!(placement.jobs.len() as u64, plan.instances());
    for order in placement.orders(&campaign, "0", &plan) {
        // It may be larger than an agent takes, or longer; never one that it cannot read.
        let _ = order.check(&order.agent, "0");
        assert!(order.jobs.iter().all(|job| job.kind.parse_options(&job.options).is_ok()));
    }
});
