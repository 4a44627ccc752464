//! Built-in plans for common measurements.

/// Plan that is part of the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BuiltinPlan {
    /// Plan name.
    pub name: &'static str,
    /// Text of the plan file.
    pub text: &'static str,
}

/// All built-in plans.
pub const PLANS: &[BuiltinPlan] = &[
    BuiltinPlan {
        name: "ntp-saturation",
        text: include_str!("../../../plans/ntp-saturation.toml"),
    },
    BuiltinPlan { name: "relay-tree", text: include_str!("../../../plans/relay-tree.toml") },
    BuiltinPlan { name: "rt-cluster", text: include_str!("../../../plans/rt-cluster.toml") },
    BuiltinPlan { name: "udp-all-pairs", text: include_str!("../../../plans/udp-all-pairs.toml") },
];

/// Returns the built-in plan of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static BuiltinPlan> {
    PLANS.iter().find(|plan| plan.name == name)
}
