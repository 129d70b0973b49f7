//! The configuration file of `serve`: it is accepted, or refused with a reason and the line. An
//! accepted address is written as it is read.
#![no_main]

#[path = "../../crates/cli/src/commands/serve"]
#[allow(dead_code, unexpected_cfgs)]
mod serve {
    pub mod config;
    pub mod connections;
    pub mod metrics;
    pub mod rights;
}
use libfuzzer_sys::fuzz_target;
use serve::config::Config;

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    match Config::parse(text) {
        Ok(config) => assert!(
            config
                .nbd
                .iter()
                .all(|address| address.to_string().parse().as_ref() == Ok(address))
        ),
        Err(why) => {
            assert!(!why.is_empty());
            let line = why
                .strip_prefix("line ")
                .and_then(|rest| rest.split_once(':'))
                .and_then(|(number, _)| number.parse::<usize>().ok());
            assert!(
                line.is_none_or(|line| (1..=text.matches('\n').count() + 1).contains(&line)),
                "{why}"
            );
        }
    }
});
