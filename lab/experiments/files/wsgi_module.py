"""Where pip has put the module of httpd, and which Python it needs, as lines of httpd's configuration."""

import glob
import importlib.util
import os
import sys

folder = os.path.dirname(importlib.util.find_spec("mod_wsgi").origin)
print("LoadModule wsgi_module", glob.glob(os.path.join(folder, "server", "mod_wsgi-py*.so"))[0])
print("WSGIPythonHome", sys.prefix)
