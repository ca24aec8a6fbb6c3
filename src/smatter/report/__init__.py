"""Records to one offline HTML page: no script, no font, no link to anywhere."""
