//! The plans that come with the program, for what many want to know.

/// A plan that comes with the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shipped {
    /// What it is called.
    pub name: &'static str,
    /// Its file.
    pub text: &'static str,
}

/// All of them.
pub const PLANS: &[Shipped] = &[
    Shipped { name: "ntp-saturation", text: include_str!("../../../plans/ntp-saturation.toml") },
    Shipped { name: "relay-tree", text: include_str!("../../../plans/relay-tree.toml") },
    Shipped { name: "rt-cluster", text: include_str!("../../../plans/rt-cluster.toml") },
    Shipped { name: "udp-all-pairs", text: include_str!("../../../plans/udp-all-pairs.toml") },
];

/// The plan of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Shipped> {
    PLANS.iter().find(|plan| plan.name == name)
}
