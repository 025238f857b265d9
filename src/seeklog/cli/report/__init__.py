"""`seeklog report`: what a store holds, as one HTML page that needs nothing else.

`gather` reads the store into `facts`, in bounded memory; `segment_map` and `charts` draw them as SVG; `page` puts all
of it into a page. Everything that comes from data is escaped in one place, `markup`.
"""
