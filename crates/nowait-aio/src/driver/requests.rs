//! The requests in flight, by the `user_data` of their operations.

use crate::driver::in_flight::InFlight;

#[derive(Default)]
pub struct Requests {
    entries: Vec<Option<InFlight>>,
    /// Numbers without a request.
    free: Vec<usize>,
}

impl Requests {
    /// Adds a request, and returns its `user_data`.
    pub fn insert(&mut self, request: InFlight) -> usize {
        match self.free.pop() {
            Some(user_data) => {
                self.entries[user_data] = Some(request);
                user_data
            }
            None => {
                self.entries.push(Some(request));
                self.entries.len() - 1
            }
        }
    }

    pub fn get(&self, user_data: usize) -> Option<&InFlight> {
        self.entries.get(user_data)?.as_ref()
    }

    pub fn get_mut(&mut self, user_data: usize) -> Option<&mut InFlight> {
        self.entries.get_mut(user_data)?.as_mut()
    }

    pub fn remove(&mut self, user_data: usize) -> Option<InFlight> {
        let request = self.entries.get_mut(user_data)?.take()?;
        self.free.push(user_data);
        Some(request)
    }

    pub fn iter(&self) -> impl Iterator<Item = (usize, &InFlight)> {
        let entries = self.entries.iter().enumerate();
        entries.filter_map(|(user_data, request)| Some((user_data, request.as_ref()?)))
    }
}
