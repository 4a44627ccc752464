//! Tests of the rules for help texts, on clap's definition of all commands. Full stops are checked
//! in the source by `cargo xtask tidy`, because clap removes them from texts of one paragraph.

use clap::{Command, CommandFactory};

use crate::Cli;

/// Longest first paragraph of a help text without "[default…]", in characters: two or three lines
/// of `-h` on a terminal.
const FIRST_PARAGRAPH_MAX: usize = 240;

/// First words that a help text must not have, because it is then neither an imperative nor a noun
/// phrase.
const OPENINGS: [&str; 17] = [
    "What", "Who", "Whose", "Whom", "How", "Where", "Whether", "Which", "Why", "When", "Be", "Let",
    "Have", "So", "Those", "That", "As",
];

/// Phrases that a help text must not contain, each with its replacement.
const PHRASES: [(&str, &str); 10] = [
    ("given more than once", "Repeatable."),
    ("given several times", "Repeatable."),
    ("to be had", "available"),
    ("so many", "a number"),
    ("so long", "a time"),
    ("held against", "compared with"),
    ("nobody", "the program or host"),
    ("somebody", "the program or host"),
    ("whoever", "the program or host"),
    ("told", "reported, sent or set"),
];

/// Returns the violations of the rules by one help text.
fn violations(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let first = text.split("\n\n").next().unwrap_or_default();
    let word = first.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
    if OPENINGS.contains(&word) {
        found.push(format!("opens with '{word}': use an imperative verb or a noun phrase"));
    }
    let length = first.split("[default").next().unwrap_or_default().trim_end().chars().count();
    if length > FIRST_PARAGRAPH_MAX {
        found.push(format!(
            "first paragraph of {length} characters, the limit is {FIRST_PARAGRAPH_MAX}: move \
             details to a second one"
        ));
    }
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    for (phrase, instead) in PHRASES {
        if contains_words(&words, phrase) {
            found.push(format!("'{phrase}': use '{instead}'"));
        }
    }
    found
}

/// Returns true if `text` contains `phrase` between the boundaries of words.
fn contains_words(text: &str, phrase: &str) -> bool {
    text.match_indices(phrase).any(|(start, _)| {
        let (before, after) = (&text[..start], &text[start + phrase.len()..]);
        !before.ends_with(char::is_alphanumeric) && !after.starts_with(char::is_alphanumeric)
    })
}

/// Returns the violations by the help texts of a command and its subcommands, each prefixed with
/// the command and the flag.
fn violations_of(command: &Command, name: &str) -> Vec<String> {
    let about = command.get_long_about().or_else(|| command.get_about());
    let Some(about) = about else { return vec![format!("{name}: no description")] };
    let mut texts = vec![(name.to_owned(), about.to_string())];
    for argument in command.get_arguments() {
        let help = argument.get_long_help().or_else(|| argument.get_help());
        let option = format!("{name} {}", argument.get_id());
        texts.extend(help.map(|text| (option.clone(), text.to_string())));
        for value in argument.get_possible_values() {
            let help = value.get_help().map(ToString::to_string);
            texts.extend(help.map(|text| (format!("{option}={}", value.get_name()), text)));
        }
    }
    let own = texts.into_iter().flat_map(|(owner, text)| {
        violations(&text).into_iter().map(move |violation| format!("{owner}: {violation}"))
    });
    let inner = command.get_subcommands().flat_map(|inner| {
        let name = format!("{name} {}", inner.get_name());
        violations_of(inner, &name)
    });
    own.chain(inner).collect()
}

/// Returns the flags that a text names, without the hyphens: `rate` for `--rate`.
fn flags_in(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let flags = words.filter_map(|word| word.strip_prefix("--"));
    flags
        .filter(|flag| flag.starts_with(|c: char| c.is_ascii_lowercase()))
        .map(Into::into)
        .collect()
}

/// Collects the long flags and the help texts of a command and its subcommands.
fn collect(command: &Command, flags: &mut Vec<String>, texts: &mut Vec<String>) {
    texts.extend(command.get_long_about().map(ToString::to_string));
    for argument in command.get_arguments() {
        flags.extend(argument.get_long().map(ToOwned::to_owned));
        let help = argument.get_long_help().or_else(|| argument.get_help());
        texts.extend(help.map(ToString::to_string));
    }
    command.get_subcommands().for_each(|inner| collect(inner, flags, texts));
}

#[test]
fn help_texts_name_flags_that_exist() {
    let mut command = Cli::command();
    command.build();
    let (mut flags, mut texts) = (Vec::new(), Vec::new());
    collect(&command, &mut flags, &mut texts);
    for text in &texts {
        for flag in flags_in(text) {
            assert!(flags.contains(&flag), "no flag --{flag}: {text}");
        }
    }
    assert_eq!(
        flags_in("Send at --rate (see --i-own-this); not -r, 1--2 or --."),
        ["rate", "i-own-this"]
    );
}

#[test]
fn help_texts_hold_the_rules() {
    let mut command = Cli::command();
    command.build();
    let found = violations_of(&command, "horolog");
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_text_that_breaks_each_rule_is_found() {
    let long = "Send ".repeat(50);
    for (text, fragment) in [
        ("What it sends", "opens with 'What'"),
        ("Let it send", "opens with 'Let'"),
        (long.as_str(), "249 characters"),
        ("Send; may be given more than once", "Repeatable."),
        ("Send at\nthe best rate\nto be\nhad", "'to be had'"),
        ("Send.\n\nSent to whoever listens.", "'whoever'"),
    ] {
        let found = violations(text);
        assert!(found.len() == 1 && found[0].contains(fragment), "{text}: {found:?}");
    }
}

#[test]
fn a_text_that_holds_the_rules_passes() {
    let long = format!("Send at this rate [default: {}]", "1k ".repeat(100));
    for text in [
        "Send at this rate. Repeatable",
        "Rate of requests",
        "Beacon interval",
        &long,
        &format!("Send.\n\nMetrics: {}.", "p99, ".repeat(100)),
    ] {
        assert_eq!(violations(text), Vec::<String>::new(), "{text}");
    }
}
