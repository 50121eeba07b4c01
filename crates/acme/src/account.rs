//! Accounts at authorities, kept in the storage folder: an authority's limits and its validated names hang on them.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::time::SystemTime;

use instant_acme::{Account, AccountCredentials, NewAccount};
use serde::{Deserialize, Serialize};

use crate::directory_client::DirectoryClient;
use crate::fault::IssueFault;
use crate::plan::{Authority, Directory};
use crate::storage::{Storage, read};

/// Accounts that are open.
pub(crate) struct Accounts {
    storage: Storage,
    email: Option<String>,
    roots: Option<std::path::PathBuf>,
    open: HashMap<Directory, Account>,
}

/// An account as it is kept.
#[derive(Serialize, Deserialize)]
struct KeptAccount {
    /// What the authority has been told.
    email: Option<String>,
    credentials: AccountCredentials,
}

impl Accounts {
    pub(crate) fn new(storage: &Storage, authority: &Authority) -> Self {
        Self {
            storage: storage.clone(),
            email: authority.email.clone(),
            roots: authority.roots.clone(),
            open: HashMap::new(),
        }
    }

    /// The account at a directory, made where there is none.
    pub(crate) async fn open(&mut self, directory: &Directory) -> Result<Account, IssueFault> {
        if let Some(account) = self.open.get(directory) {
            return Ok(account.clone());
        }
        // The roots are read anew: a file may have been mended.
        let client = DirectoryClient::new(self.roots.as_deref())?;
        let account = match self.kept(directory)? {
            Some(kept) => self.reopen(client, kept, directory).await?,
            None => self.make(client, directory).await?,
        };
        self.open.insert(directory.clone(), account.clone());
        Ok(account)
    }

    /// The next use reads the directory anew.
    pub(crate) fn close(&mut self, directory: &Directory) {
        self.open.remove(directory);
    }

    /// An authority does not know its account any more: the next use makes another one.
    pub(crate) fn forget(&mut self, directory: &Directory) -> io::Result<()> {
        self.close(directory);
        let path = self.storage.account(directory);
        fs::rename(&path, path.with_extension("unknown"))
    }

    fn kept(&self, directory: &Directory) -> Result<Option<KeptAccount>, IssueFault> {
        let Some(text) = read(&self.storage.account(directory))? else {
            return Ok(None);
        };
        // A key that cannot be read is no reason to make another account without a word.
        let kept = serde_json::from_str(&text).map_err(io::Error::from)?;
        Ok(Some(kept))
    }

    async fn reopen(
        &self,
        client: DirectoryClient,
        kept: KeptAccount,
        directory: &Directory,
    ) -> Result<Account, IssueFault> {
        let text = serde_json::to_string(&kept.credentials).map_err(io::Error::from)?;
        let builder = Account::builder_with_http(Box::new(client));
        let account = builder.from_credentials(kept.credentials).await?;
        if kept.email != self.email {
            let contact = self.contact();
            let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
            account.update_contacts(&contact).await?;
            let credentials = serde_json::from_str(&text).map_err(io::Error::from)?;
            self.keep(directory, credentials)?;
        }
        Ok(account)
    }

    async fn make(
        &self,
        client: DirectoryClient,
        directory: &Directory,
    ) -> Result<Account, IssueFault> {
        let contact = self.contact();
        let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
        let wanted = NewAccount {
            contact: &contact,
            // The configuration is refused without the agreement.
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let builder = Account::builder_with_http(Box::new(client));
        let (account, credentials) = builder.create(&wanted, directory.url.clone(), None).await?;
        self.keep(directory, credentials)?;
        Ok(account)
    }

    fn keep(
        &self,
        directory: &Directory,
        credentials: AccountCredentials,
    ) -> Result<(), IssueFault> {
        let kept = KeptAccount {
            email: self.email.clone(),
            credentials,
        };
        let text = serde_json::to_vec(&kept).map_err(io::Error::from)?;
        Ok(self.storage.save(&self.storage.account(directory), &text)?)
    }

    fn contact(&self) -> Option<String> {
        self.email.as_ref().map(|email| format!("mailto:{email}"))
    }
}

impl IssueFault {
    /// The authority has lost the account, as one that was set up anew.
    pub(crate) fn is_unknown_account(&self) -> bool {
        matches!(self, IssueFault::Refused(text) if text.contains("(accountDoesNotExist)"))
    }
}

/// Seconds since 1970.
pub(crate) fn unix_s(at: SystemTime) -> u64 {
    at.duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |age| age.as_secs())
}
