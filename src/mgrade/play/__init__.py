"""The playground: a page that runs an exported model in the browser, sample by sample, and shows its states.

from mgrade.play import Server, open_exhibit, site, write_site

files = site(open_exhibit(Path("vowels-web")))
write_site(files, Path("public"))     # for any static host
Server(files).serve_forever()         # or for this machine alone
"""

from mgrade.play.exhibit import Exhibit, open_exhibit
from mgrade.play.server import Server
from mgrade.play.site import site, write_site

__all__ = ["Exhibit", "Server", "open_exhibit", "site", "write_site"]
