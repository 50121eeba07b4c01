//! The names of routes. Takes a configuration; gives a name for each route, no two of them the same, in a time that grows
//! with the number of routes and not with its square.

use std::collections::{HashMap, HashSet};

use crate::typed::Config;

impl Config {
    /// Names of all routes, as logs, filters and counters have them: four that are always there, the mounts' URLs in the
    /// mounts' order, and the other routes in theirs, without the one that takes all.
    pub fn route_names(&self) -> Vec<String> {
        let mounts = self.statics.iter().map(|mount| match mount.url.as_str() {
            "" => "/".to_owned(),
            url => url.to_owned(),
        });
        let own = ["none", "status", "app", "rules"].map(str::to_owned);
        let mut names: Vec<String> = own.into_iter().chain(mounts).collect();
        let mut known: HashSet<String> = names.iter().cloned().collect();
        // How many numbers of a name have been tried; all of them are taken.
        let mut tried: HashMap<String, u64> = HashMap::new();
        for route in self.routes.iter().filter(|route| !route.takes_all()) {
            let own = route.name();
            // Routes that differ in their methods or headers alone are told apart by a number.
            let number = tried.entry(own.clone()).or_insert(0);
            let name = loop {
                *number += 1;
                let name = match *number {
                    1 => own.clone(),
                    number => format!("{own}#{number}"),
                };
                if known.insert(name.clone()) {
                    break name;
                }
            };
            names.push(name);
        }
        names
    }
}
